"""TensorFlow's operators that compute, and do nothing else.

An artifact may have these and no others. None of them reads or writes a file,
talks to anybody, waits, runs Python, or ends the process; what they know comes
from their inputs, their attributes and the variables of their own graph.
Further ones are named by `allow_operators` (`--allow-op`).
"""

import difflib
from collections.abc import Collection, Sequence

_ALLOWED = {
    # Control flow by functions, and what holds a graph together.
    "control flow": """
        Assert Case CheckNumerics CheckNumericsV2 Const ControlTrigger
        EnsureShape FakeParam For GuaranteeConst Identity IdentityN If NoOp
        OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone
        PartitionedCall Placeholder PlaceholderWithDefault PreventGradient Print
        PrintV2 Snapshot StatefulPartitionedCall StatelessCase StatelessIf
        StatelessWhile StopGradient While
    """,
    # Each number by itself.
    "elementwise": """
        Abs Acos Acosh Add AddN AddV2 Angle ApproximateEqual Asin Asinh Atan
        Atan2 Atanh BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1
        BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Betainc Bitcast
        BitwiseAnd BitwiseOr BitwiseXor Cast Ceil ClipByValue Complex ComplexAbs
        Conj Cos Cosh Dawsn Digamma Div DivNoNan Equal Erf Erfc Erfinv Exp
        Expint Expm1 Floor FloorDiv FloorMod FresnelCos FresnelSin Greater
        GreaterEqual Igamma Igammac Imag Inv Invert IsFinite IsInf IsNan
        LeftShift Less LessEqual Lgamma Log Log1p LogicalAnd LogicalNot
        LogicalOr Maximum Minimum Mod Mul MulNoNan Ndtri Neg NextAfter NotEqual
        OnesLike Polygamma PopulationCount Pow Real RealDiv Reciprocal
        RightShift Rint Round Rsqrt Select SelectV2 Sigmoid Sign Sin Sinh Spence
        Sqrt Square SquaredDifference Sub Tan Tanh ToBool TruncateDiv
        TruncateMod Xdivy Xlog1py Xlogy ZerosLike Zeta
    """,
    "reductions": """
        All Any ApproxTopK ArgMax ArgMin Bincount Bucketize Cumprod Cumsum
        CumulativeLogsumexp DenseBincount EuclideanNorm HistogramFixedWidth
        InTopK InTopKV2 L2Loss LowerBound Max Mean Min NthElement Prod
        SegmentMax SegmentMaxV2 SegmentMean SegmentMin SegmentMinV2 SegmentProd
        SegmentProdV2 SegmentSum SegmentSumV2 Sum TopK TopKV2 UnsortedSegmentMax
        UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum UpperBound
    """,
    "shapes and places": """
        BatchToSpace BatchToSpaceND BroadcastArgs BroadcastTo Concat
        ConcatOffset ConcatV2 ConjugateTranspose DepthToSpace Diag DiagPart
        DynamicPartition DynamicStitch ExpandDims Fill Gather GatherNd GatherV2
        InvertPermutation LinSpace ListDiff MatrixBandPart MatrixDiag
        MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2
        MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MirrorPad
        OneHot Pack Pad PadV2 ParallelDynamicStitch Range Rank Reshape Reverse
        ReverseSequence ReverseV2 Roll ScatterNd ScatterNdNonAliasingAdd Shape
        ShapeN Size Slice SpaceToBatch SpaceToBatchND SpaceToDepth Split SplitV
        Squeeze StridedSlice TensorScatterAdd TensorScatterMax TensorScatterMin
        TensorScatterSub TensorScatterUpdate TensorStridedSliceUpdate Tile
        Transpose Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack
        UnravelIndex Where
    """,
    "linear algebra": """
        BandedTriangularSolve BatchMatMul BatchMatMulV2 BatchMatMulV3 Cholesky
        Cross Eig Einsum LogMatrixDeterminant Lu MatMul MatrixDeterminant
        MatrixExponential MatrixInverse MatrixLogarithm MatrixSolve
        MatrixSolveLs MatrixSquareRoot MatrixTriangularSolve Qr SelfAdjointEig
        SelfAdjointEigV2 SparseMatMul Svd TridiagonalMatMul TridiagonalSolve
        XlaConvV2 XlaDotV2 XlaDynamicSlice XlaDynamicUpdateSlice XlaEinsum
        XlaGather XlaPad XlaReducePrecision XlaSort
    """,
    "neural networks": """
        AvgPool AvgPool3D BatchNormWithGlobalNormalization BiasAdd BiasAddV1
        BlockLSTM BlockLSTMV2 CTCBeamSearchDecoder CTCGreedyDecoder CTCLoss
        CTCLossV2 Conv Conv2D Conv2DBackpropInput Conv3D Conv3DBackpropInput
        Conv3DBackpropInputV2 DataFormatDimMap DataFormatVecPermute
        DepthwiseConv2dNative Dilation2D Elu ExtractImagePatches
        ExtractVolumePatches FractionalAvgPool FractionalMaxPool FusedBatchNorm
        FusedBatchNormV2 FusedBatchNormV3 FusedPadConv2D FusedResizeAndPadConv2D
        GRUBlockCell IsotonicRegression LRN LSTMBlockCell LeakyRelu LogSoftmax
        MaxPool MaxPool3D MaxPoolV2 MaxPoolWithArgmax Relu Relu6 Selu Softmax
        SoftmaxCrossEntropyWithLogits Softplus Softsign
        SparseSoftmaxCrossEntropyWithLogits
    """,
    "numbers in few bits": """
        Dequantize FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars
        FakeQuantWithMinMaxVarsPerChannel QuantizeAndDequantize
        QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4
        QuantizeDownAndShrinkRange QuantizeV2 QuantizedAdd QuantizedAvgPool
        QuantizedBiasAdd QuantizedConcat QuantizedConv2D QuantizedInstanceNorm
        QuantizedMatMul QuantizedMaxPool QuantizedMul QuantizedRelu
        QuantizedRelu6 QuantizedReshape QuantizedResizeBilinear
        RequantizationRange Requantize UniformDequantize UniformQuantize
        UniformQuantizedAdd UniformQuantizedClipByValue
        UniformQuantizedConvolution UniformQuantizedConvolutionHybrid
        UniformQuantizedDot UniformQuantizedDotHybrid UniformRequantize
    """,
    "signals, sounds and pictures": """
        AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation
        AudioSpectrogram CombinedNonMaxSuppression CropAndResize
        DecodeAndCropJpeg DecodeBmp DecodeGif DecodeImage DecodeJpeg DecodePng
        DecodeWav DecodeWebP DrawBoundingBoxes DrawBoundingBoxesV2 EncodeJpeg
        EncodeJpegVariableQuality EncodePng EncodeWav ExtractGlimpse
        ExtractGlimpseV2 ExtractJpegShape FFT FFT2D FFT3D FFTND HSVToRGB IFFT
        IFFT2D IFFT3D IFFTND IRFFT IRFFT2D IRFFT3D IRFFTND
        ImageProjectiveTransformV2 ImageProjectiveTransformV3 Mfcc
        NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3
        NonMaxSuppressionV4 NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps
        RFFT RFFT2D RFFT3D RFFTND RGBToHSV ResizeArea ResizeBicubic
        ResizeBilinear ResizeNearestNeighbor ScaleAndTranslate
    """,
    # Layers that preprocess draw; others have branches that they do not take.
    "random numbers": """
        Multinomial ParameterizedTruncatedNormal RandomCrop RandomGamma
        RandomIndexShuffle RandomPoisson RandomPoissonV2 RandomShuffle
        RandomStandardNormal RandomUniform RandomUniformInt RngReadAndSkip
        RngSkip SobolSample StatefulRandomBinomial StatefulStandardNormal
        StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform
        StatefulUniformFullInt StatefulUniformInt StatelessMultinomial
        StatelessParameterizedTruncatedNormal StatelessRandomBinomial
        StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomGetAlg
        StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg
        StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomPoisson
        StatelessRandomUniform StatelessRandomUniformFullInt
        StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
        StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessShuffle
        StatelessTruncatedNormal StatelessTruncatedNormalV2 TruncatedNormal
        UniformCandidateSampler
    """,
    "strings, and numbers out of bytes": """
        AsString DecodeBase64 DecodeCSV DecodeCompressed DecodeJSONExample
        DecodePaddedRaw DecodeRaw EditDistance EncodeBase64 Fingerprint
        ParseExample ParseExampleV2 ParseSequenceExample ParseSequenceExampleV2
        ParseSingleExample ParseSingleSequenceExample ParseTensor ReduceJoin
        RegexFullMatch RegexReplace SerializeTensor ShardedFilename
        StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin
        StringLength StringLower StringNGrams StringSplit StringSplitV2
        StringStrip StringToHashBucket StringToHashBucketFast
        StringToHashBucketStrong StringToNumber StringUpper Substr UnicodeDecode
        UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript UnicodeTranscode
        UnsortedSegmentJoin
    """,
    # TF-Text, whose vocabularies are inputs of its operators.
    "tokens": """
        CaseFoldUTF8 ConstrainedSequence FastBertNormalize
        FastWordpieceTokenizeWithOffsets FindSourceOffsets MaxSpanningTree
        NormalizeUTF8 NormalizeUTF8WithOffsetsMap PhraseTokenize
        RegexSplitWithOffsets SentenceFragments SentenceFragmentsV2
        SentencepieceDetokenizeOp SentencepieceIdToStringOp SentencepieceOp
        SentencepieceStringToIdOp SentencepieceTokenizeOp
        SentencepieceTokenizeWithOffsetsOp SentencepieceVocabSizeOp
        SplitMergeTokenizeWithOffsets TFText>BoiseTagsToOffsets
        TFText>ByteSplitByOffsets TFText>ByteSplitWithOffsets
        TFText>FastSentencepieceDetokenize TFText>FastSentencepieceTokenize
        TFText>FastWordpieceDetokenize TFText>NgramsStringJoin
        TFText>OffsetsToBoiseTags TFText>PhraseDetokenize
        TFText>RoundRobinGenerateMasks TFText>RoundRobinTrim TFText>Utf8Binarize
        TFText>WhitespaceTokenizeWithOffsetsV2 TokenizerFromLogits
        UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets
        WordpieceTokenizeWithOffsets
    """,
    # Their contents are constants, or an asset, which is checked apart.
    "lookup tables": """
        AnonymousHashTable AnonymousMutableDenseHashTable
        AnonymousMutableHashTable AnonymousMutableHashTableOfTensors HashTable
        HashTableV2 InitializeTable InitializeTableV2 LookupTableExportV2
        LookupTableFind LookupTableFindV2 LookupTableImportV2
        LookupTableInsertV2 LookupTableRemoveV2 LookupTableSize
        LookupTableSizeV2 MutableDenseHashTableV2 MutableHashTableOfTensorsV2
        MutableHashTableV2
    """,
    "variables": """
        AssignAddVariableOp AssignSubVariableOp AssignVariableOp
        DestroyResourceOp DisableCopyOnRead ReadVariableOp ResourceGather
        ResourceGatherNd ResourceScatterAdd ResourceScatterDiv
        ResourceScatterMax ResourceScatterMin ResourceScatterMul
        ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin
        ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub
        ResourceScatterUpdate ResourceStridedSliceAssign VarHandleOp
        VarIsInitializedOp VariableShape
    """,
    "lists and maps of tensors": """
        EmptyTensorList EmptyTensorMap TensorListConcat TensorListConcatLists
        TensorListConcatV2 TensorListElementShape TensorListFromTensor
        TensorListGather TensorListGetItem TensorListLength TensorListPopBack
        TensorListPushBack TensorListPushBackBatch TensorListReserve
        TensorListResize TensorListScatter TensorListScatterIntoExistingList
        TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack
        TensorMapErase TensorMapHasKey TensorMapInsert TensorMapLookup
        TensorMapSize TensorMapStackKeys
    """,
    "ragged and sparse tensors": """
        CompositeTensorVariantFromComponents CompositeTensorVariantToComponents
        DenseCountSparseOutput DenseToDenseSetOperation
        DenseToSparseSetOperation DeserializeManySparse DeserializeSparse
        RaggedBincount RaggedCountSparseOutput RaggedCross RaggedFillEmptyRows
        RaggedGather RaggedRange RaggedTensorFromVariant RaggedTensorToSparse
        RaggedTensorToTensor RaggedTensorToVariant SerializeManySparse
        SerializeSparse SetSize SparseAdd SparseBincount SparseConcat
        SparseCountSparseOutput SparseCross SparseCrossHashed SparseCrossV2
        SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul
        SparseFillEmptyRows SparseReduceMax SparseReduceMaxSparse
        SparseReduceSum SparseReduceSumSparse SparseReorder SparseReshape
        SparseSegmentMean SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
        SparseSegmentSqrtNWithNumSegments SparseSegmentSum
        SparseSegmentSumWithNumSegments SparseSlice SparseSoftmax
        SparseSparseMaximum SparseSparseMinimum SparseSplit SparseTensorDenseAdd
        SparseTensorDenseMatMul SparseToDense SparseToSparseSetOperation
    """,
}

ALLOWED = frozenset(
    name for names in _ALLOWED.values() for name in names.split()
)
# Those that files are named to. They are judged by where they stand: TensorFlow
# saves and restores variables by these, and reads vocabularies of assets.
BY_PLACE = frozenset(
    {
        "InitializeTableFromTextFile",
        "InitializeTableFromTextFileV2",
        "MergeV2Checkpoints",
        "RestoreV2",
        "SaveV2",
    }
)


def check_known(names: Sequence[str], present: Collection[str] = ()) -> None:
    """Raises `ValueError` for a name that no operator has.

    Args:
        names: What `allow_operators` says; of TensorFlow's operators also
            with Flex before it, as LiteRT files have them.
        present: Those of the artifact, which may be anybody's.
    """
    if not names:
        return  # and TensorFlow need not be imported
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    known = {*ALLOWED, *BY_PLACE, *dir(tf.raw_ops)}
    for name in names:
        plain = name.removeprefix("Flex")
        if name in present or plain in known or op_def_registry.get(plain):
            continue
        near = difflib.get_close_matches(name, sorted(present), n=1)
        near = near or difflib.get_close_matches(name, sorted(known), n=1)
        raise ValueError(
            "`allow_operators` (--allow-op) must be names of operators. "
            f"Received: '{name}', which TensorFlow does not have, nor this "
            f"artifact{f'. Did you mean {near[0]!r}?' if near else ''}"
        )

// Token ids to scores, through LiteRT alone: takes any exported file whose
// default signature has an input "ids" and an output "scores".

import Foundation
import TensorFlowLite

final class PlainLiteRt {
    private let runner: SignatureRunner

    init() throws {
        guard let path = Bundle.main.path(forResource: "ids", ofType: "tflite") else {
            throw CocoaError(.fileNoSuchFile)
        }
        let interpreter = try Interpreter(modelPath: path)
        runner = try interpreter.signatureRunner(with: "serving_default")
    }

    /// The scores of a text, given as its ids, of any length from 1.
    func classify(_ tokens: [Int32]) throws -> [Float32] {
        try runner.resizeInput(named: "ids", toShape: Tensor.Shape([1, tokens.count]))
        try runner.allocateTensors()
        let ids = tokens.withUnsafeBufferPointer { Data(buffer: $0) }
        try runner.invoke(with: ["ids": ids])
        return try runner.output(named: "scores").data.withUnsafeBytes {
            Array($0.bindMemory(to: Float32.self))
        }
    }
}

// Token ids to token ids, through LiteRT alone: takes a generator's file, whose
// default signature has an input "ids" and an output "ids".

import Foundation
import TensorFlowLite

final class GeneratorLiteRt {
    private let runner: SignatureRunner

    init() throws {
        guard let path = Bundle.main.path(forResource: "generator", ofType: "tflite") else {
            throw CocoaError(.fileNoSuchFile)
        }
        let interpreter = try Interpreter(modelPath: path)
        runner = try interpreter.signatureRunner(with: "serving_default")
    }

    /// The ids of the answer, its end symbol among them, for ids of any length from 1.
    func generate(_ tokens: [Int32]) throws -> [Int32] {
        try runner.resizeInput(named: "ids", toShape: Tensor.Shape([1, tokens.count]))
        try runner.allocateTensors()
        let ids = tokens.withUnsafeBufferPointer { Data(buffer: $0) }
        try runner.invoke(with: ["ids": ids])
        let found = try runner.output(named: "ids").data.withUnsafeBytes {
            Array($0.bindMemory(to: Int32.self))
        }
        return Array(found.prefix { $0 != 0 })
    }
}

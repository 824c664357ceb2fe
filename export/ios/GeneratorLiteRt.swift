// Token ids to token ids, through LiteRT alone: takes a generator's file, whose
// default signature has an input "ids" and an output "ids".

import Foundation
import TensorFlowLite

final class GeneratorLiteRt {
    enum Refusal: Error { case noTokens }

    private var loaded: SignatureRunner?

    init() throws {
        loaded = try Self.load()
    }

    private static func load() throws -> SignatureRunner {
        guard let path = Bundle.main.path(forResource: "generator", ofType: "tflite") else {
            throw CocoaError(.fileNoSuchFile)
        }
        let interpreter = try Interpreter(modelPath: path)
        return try interpreter.signatureRunner(with: "serving_default")
    }

    /// The ids of the answer, its end symbol among them, for ids of any length from 1.
    func generate(_ tokens: [Int32]) throws -> [Int32] {
        guard !tokens.isEmpty else { throw Refusal.noTokens }
        let runner = try loaded ?? Self.load()
        // Kept only once it has answered: after an error it may give wrong
        // ids, and the next call loads another.
        loaded = nil
        try runner.resizeInput(named: "ids", toShape: Tensor.Shape([1, tokens.count]))
        try runner.allocateTensors()
        let ids = tokens.withUnsafeBufferPointer { Data(buffer: $0) }
        try runner.invoke(with: ["ids": ids])
        let found = try runner.output(named: "ids").data.withUnsafeBytes {
            Array($0.bindMemory(to: Int32.self))
        }
        loaded = runner
        return Array(found.prefix { $0 != 0 })
    }
}

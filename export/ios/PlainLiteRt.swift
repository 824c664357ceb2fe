// Token ids to scores, through LiteRT alone: takes any exported file whose
// default signature has an input "ids" and an output "scores".

import Foundation
import TensorFlowLite

final class PlainLiteRt {
    enum Refusal: Error { case noTokens }

    private var loaded: SignatureRunner?

    init() throws {
        loaded = try Self.load()
    }

    private static func load() throws -> SignatureRunner {
        guard let path = Bundle.main.path(forResource: "ids", ofType: "tflite") else {
            throw CocoaError(.fileNoSuchFile)
        }
        let interpreter = try Interpreter(modelPath: path)
        return try interpreter.signatureRunner(with: "serving_default")
    }

    /// The scores of a text, given as its ids, of any length from 1.
    func classify(_ tokens: [Int32]) throws -> [Float32] {
        guard !tokens.isEmpty else { throw Refusal.noTokens }
        let runner = try loaded ?? Self.load()
        // Kept only once it has answered: after an error it may give wrong
        // scores, and the next call loads another.
        loaded = nil
        try runner.resizeInput(named: "ids", toShape: Tensor.Shape([1, tokens.count]))
        try runner.allocateTensors()
        let ids = tokens.withUnsafeBufferPointer { Data(buffer: $0) }
        try runner.invoke(with: ["ids": ids])
        let scores = try runner.output(named: "scores").data.withUnsafeBytes {
            Array($0.bindMemory(to: Float32.self))
        }
        loaded = runner
        return scores
    }
}

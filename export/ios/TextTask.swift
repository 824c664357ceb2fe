// Raw text to scores, through MediaPipe: takes a file exported with
// task="text_classifier".

import Foundation
import MediaPipeTasksText

final class TextTask {
    private let classifier: TextClassifier

    init() throws {
        guard let path = Bundle.main.path(forResource: "model", ofType: "tflite") else {
            throw CocoaError(.fileNoSuchFile)
        }
        classifier = try TextClassifier(modelPath: path)
    }

    /// The labels of the model, else their numbers, and the scores, best first.
    func classify(_ text: String) throws -> [(label: String, score: Float)] {
        let result = try classifier.classify(text: text)
        return result.classificationResult.classifications[0].categories.map {
            ($0.categoryName ?? "\($0.index)", $0.score)
        }
    }
}

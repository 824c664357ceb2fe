// Raw text to scores, through MediaPipe: takes a file exported with
// task="text_classifier".

import Foundation
import MediaPipeTasksText

final class TextTask {
    private var loaded: TextClassifier?

    init() throws {
        loaded = try Self.load()
    }

    private static func load() throws -> TextClassifier {
        guard let path = Bundle.main.path(forResource: "text", ofType: "tflite") else {
            throw CocoaError(.fileNoSuchFile)
        }
        return try TextClassifier(modelPath: path)
    }

    /// The labels of the model, else their numbers, and the scores, best first.
    func classify(_ text: String) throws -> [(label: String, score: Float)] {
        let classifier = try loaded ?? Self.load()
        // Kept only once it has answered: after an error it may give wrong
        // scores, and the next call loads another.
        loaded = nil
        let result = try classifier.classify(text: normalize(text))
        loaded = classifier
        return result.classificationResult.classifications[0].categories.map {
            ($0.categoryName ?? "\($0.index)", $0.score)
        }
    }
}

/// The text as the model's WordpieceTokenizer normalizes it. MediaPipe lowers the
/// letters of ASCII alone, folds no accents, and cuts at white space of ASCII alone.
func normalize(_ text: String) -> String {
    let folded = text.decomposedStringWithCompatibilityMapping.unicodeScalars
        .map(foldCase).joined().decomposedStringWithCompatibilityMapping
    var result = String.UnicodeScalarView()
    for scalar in folded.unicodeScalars {
        if scalar.properties.isDefaultIgnorableCodePoint { continue }
        switch scalar.properties.generalCategory {
        case .nonspacingMark: continue
        case .control, .format, .spaceSeparator, .lineSeparator, .paragraphSeparator:
            result.append(" ")
        default: result.append(scalar)
        }
    }
    return String(result)
}

/// As `normalize`, for a tokenizer with normalization="bert", as encoders of Hugging Face
/// have it. With its strip_accents=False, give `stripAccents: false`.
func normalizeBert(_ text: String, stripAccents: Bool = true) -> String {
    let bare = stripAccents ? text.decomposedStringWithCanonicalMapping : text
    var result = String.UnicodeScalarView()
    for scalar in bare.unicodeScalars {
        switch scalar.properties.generalCategory {
        case .nonspacingMark where stripAccents: continue
        case .format, .privateUse: continue
        case .control where !"\t\n\r".unicodeScalars.contains(scalar): continue
        case .spaceSeparator, .lineSeparator, .paragraphSeparator: result.append(" ")
        default:
            if scalar == "\u{FFFD}" { continue }
            // Letter by letter: a Greek word would end in another sigma.
            result.append(contentsOf: scalar.properties.lowercaseMapping.unicodeScalars)
        }
    }
    return String(result)
}

/// Unicode's case folding of a letter: not always its lower case.
private func foldCase(_ letter: Unicode.Scalar) -> String {
    switch letter.value {
    case 0x131: return String(letter) // the dotless i, whose capital is that of i
    case 0x13A0...0x13FF, 0xAB70...0xABBF: return letter.properties.uppercaseMapping // Cherokee
    default:
        let lower = letter.properties.lowercaseMapping
        let upper = lower.unicodeScalars.map(\.properties.uppercaseMapping).joined()
        return upper.unicodeScalars.map(\.properties.lowercaseMapping).joined()
    }
}

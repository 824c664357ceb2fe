// Ids of texts as Keras's TextVectorization makes them. Bytes are compared, since strings of
// Swift equate `é` in one character and in two.
struct Words {
    let number: [[UInt8]: Int64]

    init(_ vocabulary: [String]) {
        let pairs = vocabulary.enumerated().map { (Array($0.element.utf8), Int64($0.offset)) }
        number = Dictionary(uniqueKeysWithValues: pairs)
    }

    func ids(_ text: String, length: Int? = nil) -> [Int64] {
        let marks = Set("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'".utf8)
        let kept: [UInt8] = text.utf8.filter { !marks.contains($0) }
        let lower: [UInt8] = kept.map { (65...90).contains($0) ? $0 + 32 : $0 }
        let found: [Int64] = lower
            .split { $0 == 32 || (9...13).contains($0) }
            .map { number[Array($0)] ?? 1 }
        guard let length = length else { return found }
        return (0..<length).map { $0 < found.count ? found[$0] : 0 }
    }
}

// The cases that a file was verified with, run on the phone through LiteRT alone: takes
// any exported file, and its .cases.npz.

import Foundation
import TensorFlowLite

enum Replay {
    enum Refusal: Error { case noCases, noType(String), noOutput(String) }

    /// The largest difference of each output, by signature and name, as a share of the
    /// allowed one: above 1 it is wrong. Both files are in the app's bundle.
    static func run(_ name: String) throws -> [String: Double] {
        guard let model = Bundle.main.path(forResource: name, ofType: "tflite"),
            let cases = Bundle.main.url(forResource: "\(name).tflite.cases", withExtension: "npz")
        else { throw CocoaError(.fileNoSuchFile) }
        let members = try unzipped(Data(contentsOf: cases))
        func numbers(_ reference: Reference) throws -> Numbers {
            guard let content = members["\(reference.member).npy"] else { throw Refusal.noCases }
            return try Numbers(content)
        }
        guard let record = members["record.json"] else { throw Refusal.noCases }
        var largest: [String: Double] = [:]
        for each in try JSONDecoder().decode(Record.self, from: record).cases {
            let inputs = try each.inputs.mapValues(numbers)
            // One for each case: after an error it may give wrong numbers.
            let runner = try Interpreter(modelPath: model).signatureRunner(with: each.signature)
            for (input, given) in inputs {
                try runner.resizeInput(named: input, toShape: Tensor.Shape(given.shape))
            }
            try runner.allocateTensors()
            try runner.invoke(with: inputs.mapValues { $0.data })
            for (output, wanted) in each.outputs {
                let place = "\(each.signature)/\(output)"
                let got = try runner.output(named: output)
                guard got.shape.dimensions == wanted.shape else { throw Refusal.noOutput(place) }
                let places = try wanted.places.map { try numbers($0).int32s }
                let off = try numbers(wanted.values).difference(
                    to: got.data, scale: wanted.scale, isSample: each.is_sample, places: places)
                // 0 of 0 is allowed.
                largest[place] = max(largest[place] ?? 0, off == 0 ? 0 : off / wanted.allowed)
            }
        }
        return largest
    }

    private struct Record: Decodable { let cases: [Case] }

    private struct Case: Decodable {
        let signature: String
        let is_sample: Bool
        let inputs: [String: Reference]
        let outputs: [String: Output]
    }

    private struct Output: Decodable {
        let values: Reference
        let places: Reference?
        let shape: [Int]
        let scale, allowed: Double
    }

    private struct Reference: Decodable {
        let member: String
        enum CodingKeys: String, CodingKey { case member = "\u{0}numbers" }
    }

    /// The numbers of a file in NumPy's format.
    private struct Numbers {
        let type: Substring
        let shape: [Int]
        let data: Data

        init(_ content: Data) throws {
            let start = 10 + Int(content[8]) + Int(content[9]) << 8
            let header = String(decoding: content[10..<start], as: UTF8.self)
            type = header.components(separatedBy: "'descr': '")[1].prefix(3)
            shape = header.components(separatedBy: "(")[1].components(separatedBy: ")")[0]
                .split { !$0.isNumber }.compactMap { Int($0) }
            data = Data(content[start...])
            guard "iub".contains(type.dropFirst().prefix(1)) || type == "<f4" else {
                throw Refusal.noType(String(type))
            }
        }

        var int32s: [Int] {
            data.withUnsafeBytes { bytes in
                (0..<data.count / 4).map {
                    Int(bytes.load(fromByteOffset: 4 * $0, as: Int32.self))
                }
            }
        }

        /// How far an output is from this one: of floats the largest difference, relative
        /// to the number or to scale if that is larger; else the share that differs. Of
        /// many numbers only some are wanted. NaN and infinity count only in a user's own case.
        func difference(
            to got: Data, scale: Double, isSample: Bool, places: [Int]?
        ) -> Double {
            let width = Int(type.suffix(1))!
            let some = data.count / width
            var (largest, unequal) = (0.0, 0)
            for index in 0..<some {
                let place = width * (places?[index] ?? index)
                if type != "<f4" {
                    let wanted = data[width * index..<width * (index + 1)]
                    unequal += wanted == got[place..<place + width] ? 0 : 1
                    continue
                }
                let wanted = data.withUnsafeBytes {
                    Double($0.load(fromByteOffset: width * index, as: Float32.self))
                }
                let found = got.withUnsafeBytes {
                    Double($0.load(fromByteOffset: place, as: Float32.self))
                }
                let isSame = wanted == found || wanted.isNaN && found.isNaN
                    || !wanted.isFinite && !isSample
                let apart = isSame ? 0 : abs(found - wanted) / max(scale, abs(wanted))
                largest = max(largest, apart.isNaN ? .infinity : apart)
            }
            return unequal > 0 ? Double(unequal) / Double(some) : largest
        }
    }

    /// The members of an uncompressed zip file, by its directory, which is at its end.
    private static func unzipped(_ file: Data) throws -> [String: Data] {
        func number(_ at: Int, _ width: Int) -> Int {
            (0..<width).reduce(0) { $0 | Int(file[at + $1]) << (8 * $1) }
        }
        let end = file.count - 22
        guard end >= 0, number(end, 4) == 0x0605_4b50 else { throw Refusal.noCases }
        var (members, at) = ([String: Data](), number(end + 16, 4))
        for _ in 0..<number(end + 10, 2) {
            let (size, length, local) = (number(at + 24, 4), number(at + 28, 2), number(at + 42, 4))
            let name = String(decoding: file[at + 46..<at + 46 + length], as: UTF8.self)
            let start = local + 30 + number(local + 26, 2) + number(local + 28, 2)
            members[name] = Data(file[start..<start + size])
            at += 46 + length + number(at + 30, 2) + number(at + 32, 2)
        }
        return members
    }
}

// The cases that a file was verified with, run on the phone through LiteRT alone: takes
// any exported file of fixed shapes, and its .cases.npz.

// package com.example.app: the first line, with your own.

import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel
import com.google.ai.edge.litert.TensorBuffer
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.util.zip.ZipInputStream
import kotlin.math.abs
import org.json.JSONObject

/**
 * The largest difference of each output, by signature and name, as a share of the allowed
 * one: above 1 it is wrong. Both files are in app/src/main/assets/.
 */
fun replay(context: Context, file: String): Map<String, Double> {
    val members = HashMap<String, ByteArray>()
    ZipInputStream(context.assets.open("$file.cases.npz")).use { zip ->
        while (true) members[(zip.nextEntry ?: break).name] = zip.readBytes()
    }
    fun array(place: JSONObject, name: String): Any =
        numbers(members.getValue(place.getJSONObject(name).getString("\u0000numbers") + ".npy"))
    val cases = JSONObject(String(members.getValue("record.json"))).getJSONArray("cases")
    val largest = HashMap<String, Double>()
    for (case in List(cases.length(), cases::getJSONObject)) {
        val signature = case.getString("signature")
        val inputs = case.getJSONObject("inputs")
        val outputs = case.getJSONObject("outputs")
        // One for each case: after an error it may give wrong numbers.
        val model = CompiledModel.create(
            context.assets,
            file,
            CompiledModel.Options(Accelerator.CPU),
        )
        val given = inputs.keys().asSequence().associateWith { name ->
            model.createInputBuffer(name, signature).also { it.write(array(inputs, name)) }
        }
        val found = outputs.keys().asSequence().associateWith { name ->
            model.createOutputBuffer(name, signature)
        }
        model.run(given, found, signature)
        for ((name, buffer) in found) {
            val output = outputs.getJSONObject(name)
            val wanted = array(output, "values")
            val isSample = case.getBoolean("is_sample")
            val places = if (output.has("places")) array(output, "places") as IntArray else null
            val off = buffer.difference(wanted, output.getDouble("scale"), isSample, places)
            val share = (off / output.getDouble("allowed")).let { if (it.isNaN()) 0.0 else it }
            largest["$signature/$name"] = maxOf(share, largest["$signature/$name"] ?: 0.0)
        }
        (given.values + found.values).forEach { it.close() }
        model.close()
    }
    return largest
}

/** The numbers of a file in NumPy's format, whose header begins with the length of it. */
private fun numbers(content: ByteArray): Any {
    val all = ByteBuffer.wrap(content).order(ByteOrder.LITTLE_ENDIAN)
    val start = 10 + all.getShort(8)
    all.position(start)
    val header = String(content, 10, start - 10, Charsets.ISO_8859_1)
    return when (val type = header.substringAfter("'descr': '").substringBefore("'")) {
        "<f4" -> FloatArray(all.remaining() / 4).also { all.asFloatBuffer().get(it) }
        "<i4" -> IntArray(all.remaining() / 4).also { all.asIntBuffer().get(it) }
        "<i8" -> LongArray(all.remaining() / 8).also { all.asLongBuffer().get(it) }
        "|i1", "|u1" -> ByteArray(all.remaining()).also { all.get(it) }
        "|b1" -> BooleanArray(all.remaining()) { content[start + it] != 0.toByte() }
        else -> throw UnsupportedOperationException("LiteRT takes no $type here")
    }
}

private fun TensorBuffer.write(values: Any) = when (values) {
    is FloatArray -> writeFloat(values)
    is IntArray -> writeInt(values)
    is LongArray -> writeLong(values)
    is BooleanArray -> writeBoolean(values)
    else -> writeInt8(values as ByteArray)
}

/**
 * How far an output is from the one that is wanted: of floats the largest difference,
 * relative to the number or to scale if that is larger; else the share that differs.
 * Of many numbers only some are wanted. NaN and infinity count only in a user's own case.
 */
private fun TensorBuffer.difference(
    wanted: Any,
    scale: Double,
    isSample: Boolean,
    places: IntArray?,
): Double {
    val (all, some) = when (wanted) {
        is FloatArray -> readFloat().asList() to wanted.asList()
        is IntArray -> readInt().asList() to wanted.asList()
        is LongArray -> readLong().asList() to wanted.asList()
        is BooleanArray -> readBoolean().asList() to wanted.asList()
        else -> readInt8().asList() to (wanted as ByteArray).asList()
    }
    val apart = some.mapIndexed { index, value ->
        val found = all[places?.get(index) ?: index]
        when {
            value == found || value is Float && !value.isFinite() && !isSample -> 0.0
            value !is Float || found !is Float -> 1.0
            else -> {
                val difference = abs(found.toDouble() - value)
                val share = difference / maxOf(scale, abs(value.toDouble()))
                if (share.isNaN()) Double.POSITIVE_INFINITY else share
            }
        }
    }
    return if (wanted is FloatArray) apart.fold(0.0, ::maxOf) else apart.average()
}

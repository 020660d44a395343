import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Iterator;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;

/**
 * Kafka's own reader as a filter: buffers in, what it reads out of them as JSON out.
 *
 * In:  an int32 length (big-endian) and that many bytes, again and again until the end of the input.
 * Out: one line for each, {"batches": […], "refused": null or "Class: message"}. A batch has its header's fields and
 *      either "records", [offset, timestamp, sequence, key, value, [[header name, header value]…], checksum is right],
 *      or its own "refused". Bytes are hex. The outer "refused" is about the buffer and ends it: a size, magic or
 *      checksum that is wrong. A cut batch ends it too, and is not refused.
 *
 * Runs from its source: java -cp 'JARS/*' Reader.java
 */
public class Reader {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        while (true) {
            byte[] buffer;
            try {
                buffer = new byte[in.readInt()];
            } catch (EOFException end) {
                return;
            }
            in.readFully(buffer);
            out.println(JSON.writeValueAsString(read(buffer)));
            out.flush();
        }
    }

    private static ObjectNode read(byte[] buffer) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode batches = answer.putArray("batches");
        answer.putNull("refused");
        try {
            Iterator<MutableRecordBatch> found =
                MemoryRecords.readableRecords(ByteBuffer.wrap(buffer)).batches().iterator();
            while (found.hasNext()) {
                MutableRecordBatch batch = found.next();
                batch.ensureValid();
                batches.add(describe(batch));
            }
        } catch (Throwable refusal) {
            answer.put("refused", refusal.toString());
        }
        return answer;
    }

    private static ObjectNode describe(MutableRecordBatch batch) {
        ObjectNode node = JSON.createObjectNode();
        node.put("magic", batch.magic());
        node.put("last_offset", batch.lastOffset());
        node.put("size_in_bytes", batch.sizeInBytes());
        node.put("crc", batch.checksum());
        node.put("timestamp_type", batch.timestampType().toString());
        node.put("max_timestamp", batch.maxTimestamp());
        node.put("producer_id", batch.producerId());
        node.put("producer_epoch", batch.producerEpoch());
        node.put("base_sequence", batch.baseSequence());
        node.put("last_sequence", batch.lastSequence());
        node.put("leader_epoch", batch.partitionLeaderEpoch());
        node.put("is_transactional", batch.isTransactional());
        node.put("is_control", batch.isControlBatch());
        node.put("count", batch.countOrNull());
        node.putNull("delete_horizon_ms");
        batch.deleteHorizonMs().ifPresent(horizon -> node.put("delete_horizon_ms", horizon));
        if (batch instanceof DefaultRecordBatch) {
            node.put("base_timestamp", ((DefaultRecordBatch) batch).baseTimestamp());
        }
        node.putNull("compression");
        node.putNull("base_offset");
        try {
            node.put("compression", batch.compressionType().name);
            node.put("base_offset", batch.baseOffset());   // of a compressed message set: decompresses it
        } catch (Throwable unknown) {
            // The records say so below.
        }
        try {
            ArrayNode records = JSON.createArrayNode();
            for (Record record : batch) {
                records.add(describe(record));
            }
            node.set("records", records);
        } catch (Throwable refusal) {
            node.put("refused", refusal.toString());
        }
        return node;
    }

    private static ArrayNode describe(Record record) {
        ArrayNode node = JSON.createArrayNode();
        node.add(record.offset()).add(record.timestamp()).add(record.sequence());
        node.add(hex(record.key())).add(hex(record.value()));
        ArrayNode headers = node.addArray();
        for (Header header : record.headers()) {
            byte[] value = header.value();
            headers.addArray().add(header.key()).add(value == null ? null : HexFormat.of().formatHex(value));
        }
        boolean valid = true;
        try {
            record.ensureValid();
        } catch (RuntimeException wrong) {
            valid = false;
        }
        return node.add(valid);
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null) {
            return null;
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return HexFormat.of().formatHex(copy);
    }
}

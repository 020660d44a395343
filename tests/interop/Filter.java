import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.zip.CRC32;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.FilterResult;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

/**
 * Kafka's own filterTo as a filter, with decisions that follow from a salt and from offsets alone.
 *
 * In:  int64 salt, int32 one in how many records goes, int64 now, int64 delete retention, int32 length (all big-endian)
 *      and that many bytes, again and again until the end of the input.
 * Out: one line for each, {"output": hex, the numbers of the FilterResult, "refused": null or "Class: message"}.
 *
 * Runs from its source: java -cp 'JARS/*' Filter.java
 */
public class Filter {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        while (true) {
            long salt;
            try {
                salt = in.readLong();
            } catch (EOFException end) {
                return;
            }
            int oneIn = in.readInt();
            long now = in.readLong();
            long retention = in.readLong();
            byte[] buffer = new byte[in.readInt()];
            in.readFully(buffer);
            out.println(JSON.writeValueAsString(filter(salt, oneIn, now, retention, buffer)));
            out.flush();
        }
    }

    private static ObjectNode filter(long salt, int oneIn, long now, long retention, byte[] buffer) {
        ObjectNode answer = JSON.createObjectNode();
        answer.putNull("refused");
        try {
            FilterResult result = MemoryRecords.readableRecords(ByteBuffer.wrap(buffer)).filterTo(
                new RecordFilter(now, retention) {
                    @Override
                    protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                        long kind = drawn(salt, batch.lastOffset(), "batch") % 7;
                        if (kind == 0)
                            return new BatchRetentionResult(BatchRetention.DELETE, false);
                        boolean stays = kind > 3 && batch.magic() >= RecordBatch.MAGIC_VALUE_V2;
                        return new BatchRetentionResult(
                            stays ? BatchRetention.RETAIN_EMPTY : BatchRetention.DELETE_EMPTY, kind == 3 || kind == 6);
                    }

                    @Override
                    protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                        return drawn(salt, record.offset(), "record") % oneIn != 0;
                    }
                }, ByteBuffer.allocate(4 * buffer.length + 4096), BufferSupplier.NO_CACHING);
            ByteBuffer made = result.outputBuffer().flip();
            byte[] output = new byte[made.remaining()];
            made.get(output);
            answer.put("output", HexFormat.of().formatHex(output));
            answer.put("consumed", result.bytesRead());
            answer.put("messages_read", result.messagesRead());
            answer.put("messages_retained", result.messagesRetained());
            answer.put("bytes_retained", result.bytesRetained());
            answer.put("max_offset", result.maxOffset());
            answer.put("max_timestamp", result.maxTimestamp());
            answer.put("shallow_offset_of_max_timestamp", result.shallowOffsetOfMaxTimestamp());
        } catch (Throwable refusal) {
            answer.put("refused", refusal.toString());
        }
        return answer;
    }

    private static long drawn(long salt, long number, String what) {
        CRC32 crc = new CRC32();
        crc.update((salt + " " + number + " " + what).getBytes(StandardCharsets.UTF_8));
        return crc.getValue();
    }
}

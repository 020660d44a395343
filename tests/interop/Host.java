import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * Kafka's programs as a filter: a command in, its answer out, each a line of JSON. The end of the input ends it.
 *
 *   {"do": "dump", "arguments": […]}                                 DumpLogSegments: {"out": …, "err": …}
 *   {"do": "format", "arguments": […]}                               kafka-storage: {"exit": 0, "out": …}
 *   {"do": "start", "properties": {…}}, {"do": "stop"}               a broker, in this process: {}
 *   {"do": "create", "topic": …, "partitions": n, "config": {…}}     {"id": …}
 *   {"do": "produce", "topic": …, "properties": {…}, "runs": [{"end": null | "commit" | "abort", "records": […]} …]}
 *                                                                    {"offsets": […]}
 *   {"do": "consume", "topic": …, "properties": {…}}                 {"partition": {"start", "end", "records"} …}
 *
 * A record is [partition, timestamp, key, value, [[header name, header value] …]] to produce and
 * [offset, timestamp, key, value, headers] from consume; bytes are hex. What fails answers {"failed": "Class: message"}.
 */
public class Host {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(100);
    private static KafkaRaftServer server;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                run(JSON.readTree(line), answer);
            } catch (Throwable failure) {
                answer.put("failed", failure.toString());
                failure.printStackTrace();
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        stop();
        // Kafka leaves threads behind when a start failed.
        System.exit(0);
    }

    private static void run(JsonNode command, ObjectNode answer) throws Exception {
        switch (command.get("do").asText()) {
            case "dump" -> dump(strings(command.get("arguments")), answer);
            case "format" -> format(strings(command.get("arguments")), answer);
            case "start" -> start(properties(command));
            case "stop" -> stop();
            case "create" -> create(command, answer);
            case "produce" -> produce(command, answer);
            case "consume" -> consume(command, answer);
            default -> throw new IllegalArgumentException(command.toString());
        }
    }

    // ------------------------------------------------------------------------------------------------------- tools

    private static void dump(String[] arguments, ObjectNode answer) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream keptOut = System.out;
        PrintStream keptErr = System.err;
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        try {
            DumpLogSegments.main(arguments);
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(keptOut);
            System.setErr(keptErr);
        }
        answer.put("out", out.toString(StandardCharsets.UTF_8)).put("err", err.toString(StandardCharsets.UTF_8));
    }

    private static void format(String[] arguments, ObjectNode answer) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        int exit = StorageTool.execute(arguments, new PrintStream(out, true, StandardCharsets.UTF_8));
        answer.put("exit", exit).put("out", out.toString(StandardCharsets.UTF_8));
    }

    // ------------------------------------------------------------------------------------------------------ broker

    private static void start(Properties properties) {
        server = new KafkaRaftServer(KafkaConfig.fromProps(properties), Time.SYSTEM);
        server.startup();
    }

    private static void stop() {
        if (server != null) {
            KafkaRaftServer stopped = server;
            server = null;
            stopped.shutdown();
            stopped.awaitShutdown();
        }
    }

    // ----------------------------------------------------------------------------------------------------- clients

    private static void create(JsonNode command, ObjectNode answer) throws Exception {
        String topic = command.get("topic").asText();
        Map<String, String> config = new HashMap<>();
        command.get("config").properties().forEach(one -> config.put(one.getKey(), one.getValue().asText()));
        try (Admin admin = Admin.create(properties(command))) {
            NewTopic made = new NewTopic(topic, command.get("partitions").asInt(), (short) 1).configs(config);
            CreateTopicsResult done = admin.createTopics(List.of(made));
            done.all().get();
            answer.put("id", done.topicId(topic).get().toString());
        }
    }

    private static void produce(JsonNode command, ObjectNode answer) throws Exception {
        ArrayNode offsets = answer.putArray("offsets");
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties(command), bytes, bytes)) {
            boolean isTransactional = command.get("properties").has("transactional.id");
            if (isTransactional) {
                producer.initTransactions();
            }
            for (JsonNode run : command.get("runs")) {
                if (isTransactional) {
                    producer.beginTransaction();
                }
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (JsonNode record : run.get("records")) {
                    sent.add(producer.send(toSend(command.get("topic").asText(), record)));
                }
                producer.flush();
                for (Future<RecordMetadata> one : sent) {
                    offsets.add(one.get().offset());
                }
                switch (run.get("end").asText()) {
                    case "commit" -> producer.commitTransaction();
                    case "abort" -> producer.abortTransaction();
                    default -> { }
                }
            }
            if (isTransactional) {
                awaitMarkers(command);
            }
        }
    }

    /** A commit is answered before its markers are written, and a broker that is killed then writes them later. */
    private static void awaitMarkers(JsonNode command) throws Exception {
        String id = command.get("properties").get("transactional.id").asText();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.get("properties").get("bootstrap.servers").asText());
        try (Admin admin = Admin.create(properties)) {
            TransactionState state;
            do {
                state = admin.describeTransactions(List.of(id)).description(id).get().state();
            } while (state != TransactionState.COMPLETE_COMMIT && state != TransactionState.COMPLETE_ABORT);
        }
    }

    private static ProducerRecord<byte[], byte[]> toSend(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        record.get(4).forEach(one -> headers.add(new RecordHeader(one.get(0).asText(), unhex(one.get(1)))));
        return new ProducerRecord<>(
            topic, record.get(0).asInt(), record.get(1).asLong(), unhex(record.get(2)), unhex(record.get(3)), headers);
    }

    private static void consume(JsonNode command, ObjectNode answer) {
        String topic = command.get("topic").asText();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties(command), bytes, bytes)) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(one -> partitions.add(new TopicPartition(topic, one.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> starts = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            for (TopicPartition one : partitions) {
                ObjectNode told = answer.putObject(Integer.toString(one.partition()));
                told.put("start", starts.get(one)).put("end", ends.get(one)).putArray("records");
            }
            // The position passes markers and aborted records too, so it always comes to the end.
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    ArrayNode told = (ArrayNode) answer.get(Integer.toString(record.partition())).get("records");
                    ArrayNode row = told.addArray().add(record.offset()).add(record.timestamp());
                    row.add(hex(record.key())).add(hex(record.value()));
                    ArrayNode headers = row.addArray();
                    record.headers().forEach(one -> headers.addArray().add(one.key()).add(hex(one.value())));
                }
            }
        }
    }

    // ------------------------------------------------------------------------------------------------------- forms

    private static Properties properties(JsonNode command) {
        Properties properties = new Properties();
        command.get("properties").properties().forEach(one ->
            properties.put(one.getKey(), one.getValue().asText()));
        return properties;
    }

    private static String[] strings(JsonNode list) {
        List<String> found = new ArrayList<>();
        list.forEach(one -> found.add(one.asText()));
        return found.toArray(new String[0]);
    }

    private static String hex(byte[] value) {
        return value == null ? null : HexFormat.of().formatHex(value);
    }

    private static byte[] unhex(JsonNode value) {
        return value.isNull() ? null : HexFormat.of().parseHex(value.asText());
    }
}

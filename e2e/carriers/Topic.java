import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/** Creates the topic of links as docs/carriers/kafka.md describes it. Arguments: the address of the broker, and the name. */
public final class Topic {
    public static void main(String[] args) throws Exception {
        Map<String, String> settings =
            Map.of("retention.ms", "60000", "segment.ms", "60000", "segment.bytes", "67108864");
        NewTopic topic = new NewTopic(args[1], 16, (short) 1).configs(settings);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            admin.createTopics(List.of(topic)).all().get();
        }
    }
}

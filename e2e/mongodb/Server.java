import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.h2.H2Backend;
import de.bwaldvogel.mongo.bson.Document;
import io.netty.channel.Channel;
import java.util.List;
import org.h2.mvstore.MVStore;

/**
 * A substitute for MongoDB in the tests: a re-implementation of its protocol that writes every change to a file before it
 * answers, so that tests may kill it. Arguments: the port, the file, and "silent" if the server must not report durability.
 */
public final class Server {
    public static void main(String[] args) {
        MVStore store = new MVStore.Builder().fileName(args[1]).autoCommitDisabled().open();
        boolean isSilent = args.length > 2 && args[2].equals("silent");
        MongoServer server = new MongoServer(new Backend(store, isSilent).version(new Version()));
        server.bind("127.0.0.1", Integer.parseInt(args[0]));
    }

    /** The lowest version that current drivers accept; the library reports an older one. */
    private static final class Version implements MongoVersion {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(5, 0, 0);
        }

        @Override
        public int getWireVersion() {
            return 13;
        }
    }

    private static final class Backend extends H2Backend {
        private final boolean isSilent;

        Backend(MVStore store, boolean isSilent) {
            super(store);
            this.isSilent = isSilent;
        }

        /** Runs one command at a time: the library creates indexes and collections while other commands read them. */
        @Override
        public synchronized Document handleCommand(Channel channel, String database, String command, Document query) {
            if (command.equals("hello")) {
                Document answer = super.handleCommand(channel, database, "ismaster", query);
                return answer.append("isWritablePrimary", true);
            }
            Document answer = super.handleCommand(channel, database, command, query);
            commit();
            return answer;
        }

        @Override
        public Document getServerStatus() {
            Document status = super.getServerStatus();
            if (!isSilent) {
                status.put("storageEngine", new Document("name", "h2").append("persistent", true));
            }
            return status;
        }
    }
}

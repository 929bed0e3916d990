// The Java client of Socket.IO, which a test drives: it reads commands from its input and prints what happens, one JSON object in each line.
// Bytes are {"bytes": BASE64}.

import io.socket.client.Ack;
import io.socket.client.IO;
import io.socket.client.Manager;
import io.socket.client.Socket;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.net.URI;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

public class Client {
  private static Socket socket;

  public static void main(String[] arguments) throws Exception {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      JSONObject command = new JSONObject(line);
      String what = command.getString("do");
      if (what.equals("connect")) connect(command);
      else if (what.equals("emit")) socket.emit(command.getString("event"), values(command));
      else socket.emit(command.getString("event"), values(command), (Ack) answers -> tell("answer", "value", answers.length == 0 ? null : answers[0]));
    }
    socket.disconnect();
    System.exit(0);
  }

  private static void connect(JSONObject command) throws Exception {
    IO.Options options = new IO.Options();
    JSONArray transports = command.getJSONArray("transports");
    options.transports = new String[transports.length()];
    for (int index = 0; index < transports.length(); index += 1) options.transports[index] = transports.getString(index);
    options.auth = new HashMap<>();
    JSONObject auth = command.getJSONObject("auth");
    for (Iterator<?> names = auth.keys(); names.hasNext(); ) {
      String name = (String) names.next();
      options.auth.put(name, auth.getString(name));
    }
    options.reconnectionDelay = 100;
    options.reconnectionDelayMax = 500;
    socket = IO.socket(URI.create(command.getString("url")), options);
    socket.on(Socket.EVENT_CONNECT, ignored -> tell("connect", "id", socket.id()));
    socket.on(Socket.EVENT_CONNECT_ERROR, errors -> tell("refused", "data", errors[0] instanceof JSONObject ? errors[0] : null));
    socket.on(Socket.EVENT_DISCONNECT, ignored -> tell("disconnect", "reason", ignored[0]));
    socket.onAnyIncoming(all -> event(all));
    socket.connect();
  }

  /** An event: its name, its arguments, and an acknowledgement if the server waits for one. */
  private static void event(Object[] all) {
    Object last = all[all.length - 1];
    Object[] values = Arrays.copyOfRange(all, 1, last instanceof Ack ? all.length - 1 : all.length);
    if (all[0].equals("echo")) {
      ((Ack) last).call(values);
      return;
    }
    JSONArray told = new JSONArray();
    for (Object value : values) told.put(plain(value));
    tell("event", "name", all[0], "values", told);
  }

  private static Object[] values(JSONObject command) throws JSONException {
    JSONArray given = command.getJSONArray("values");
    Object[] values = new Object[given.length()];
    for (int index = 0; index < values.length; index += 1) {
      Object value = given.get(index);
      boolean isBytes = value instanceof JSONObject && ((JSONObject) value).has("bytes");
      values[index] = isBytes ? Base64.getDecoder().decode(((JSONObject) value).getString("bytes")) : value;
    }
    return values;
  }

  private static Object plain(Object value) {
    if (value instanceof byte[]) return new JSONObject(Map.of("bytes", Base64.getEncoder().encodeToString((byte[]) value)));
    if (!(value instanceof JSONArray)) return value == null ? JSONObject.NULL : value;
    JSONArray list = new JSONArray();
    for (int index = 0; index < ((JSONArray) value).length(); index += 1) list.put(plain(((JSONArray) value).opt(index)));
    return list;
  }

  private static synchronized void tell(String on, Object... named) {
    try {
      JSONObject line = new JSONObject().put("on", on);
      for (int index = 0; index < named.length; index += 2) line.put((String) named[index], plain(named[index + 1]));
      System.out.println(line);
    } catch (JSONException error) {
      throw new IllegalStateException(error);
    }
  }
}

// The algorithm of Meteor's polling driver: after a write it evaluates each distinct live query of the collection again, at most every
// 50 ms, and sends the difference. Usage: node repoll.mjs PORT
// It keeps the bench's contract for plain WebSocket servers: `+COLLECTION:QUERY ...` subscribes, `COLLECTION/ID VALUE` writes.
// Records are in memory, with an index of the fields that each record has; Meteor's own driver would query MongoDB.

import { createServer } from 'node:http';
import sift from 'sift';
import { WebSocketServer } from 'ws';

const INTERVAL_MS = 50;

/** Each collection: records by id, ids by field, distinct queries by name, and when they were last evaluated. */
const collections = new Map();

function collectionOf(name) {
  let collection = collections.get(name);
  if (collection === undefined) {
    collection = { records: new Map(), byField: new Map(), queries: new Map(), polledAt: 0, isScheduled: false };
    collections.set(name, collection);
  }
  return collection;
}

function subscribe(socket, name) {
  const colon = name.indexOf(':');
  const collection = collectionOf(name.slice(0, colon));
  let query = collection.queries.get(name);
  if (query === undefined) {
    const { where, sort, limit } = JSON.parse(name.slice(colon + 1));
    query = { name, field: Object.keys(where)[0], matches: sift.default(where), sort, limit, result: new Map(), sockets: new Set() };
    collection.queries.set(name, query);
    query.result = evaluate(collection, query);
  }
  query.sockets.add(socket);
  socket.queries.push(query);
}

function evaluate(collection, query) {
  const found = [];
  for (const id of collection.byField.get(query.field) ?? []) {
    const value = collection.records.get(id);
    if (query.matches(value)) found.push([id, value]);
  }
  const [path, direction] = Object.entries(query.sort ?? {})[0] ?? [];
  if (path !== undefined) found.sort(([, a], [, b]) => direction * (a[path] - b[path]));
  return new Map(found.slice(0, query.limit));
}

function write(name, text) {
  const slash = name.lastIndexOf('/');
  const collection = collectionOf(name.slice(0, slash));
  const id = name.slice(slash + 1);
  const value = JSON.parse(text);
  for (const field of Object.keys(collection.records.get(id) ?? {})) collection.byField.get(field).delete(id);
  for (const field of Object.keys(value)) {
    if (!collection.byField.has(field)) collection.byField.set(field, new Set());
    collection.byField.get(field).add(id);
  }
  collection.records.set(id, value);
  if (collection.isScheduled) return;
  collection.isScheduled = true;
  setTimeout(poll, Math.max(0, collection.polledAt + INTERVAL_MS - performance.now()), collection);
}

function poll(collection) {
  collection.isScheduled = false;
  collection.polledAt = performance.now();
  for (const query of collection.queries.values()) {
    const result = evaluate(collection, query);
    const changes = [];
    for (const id of query.result.keys()) if (!result.has(id)) changes.push({ type: 'removed', id });
    for (const [id, data] of result) {
      const before = query.result.get(id);
      if (before !== data) changes.push({ type: before === undefined ? 'added' : 'changed', row: { id, data } });
    }
    query.result = result;
    if (changes.length === 0) continue;
    const message = `${query.name} ${JSON.stringify(changes)}`;
    for (const socket of query.sockets) socket.send(message);
  }
}

const http = createServer();
const server = new WebSocketServer({ server: http, perMessageDeflate: false });
server.on('connection', (socket) => {
  socket.queries = [];
  socket.on('message', (bytes) => {
    const message = bytes.toString();
    if (message.startsWith('+')) {
      for (const name of message.slice(1).split(' ')) if (name !== '') subscribe(socket, name);
      socket.send('+');
    } else {
      const space = message.indexOf(' ');
      write(message.slice(0, space), message.slice(space + 1));
    }
  });
  socket.on('close', () => {
    for (const query of socket.queries) query.sockets.delete(socket);
  });
});
http.listen(Number(process.argv[2]), '127.0.0.1', 4096);

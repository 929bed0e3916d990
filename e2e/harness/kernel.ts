// The bytes that the kernel holds for a connection: sent or received, but not yet read.

import { readFileSync } from 'node:fs';

/** Unread bytes for the other end of the loopback connection that has this local port. */
export function unreadBytes(localPort: number): number {
  const port = localPort.toString(16).toUpperCase().padStart(4, '0');
  let bytes = 0;
  for (const line of readFileSync('/proc/net/tcp', 'utf8').split('\n').slice(1)) {
    const [, local, remote, , queues] = line.trim().split(/\s+/);
    const [sent, received] = (queues ?? '0:0').split(':').map((count) => Number.parseInt(count, 16));
    if (local?.endsWith(`:${port}`)) bytes += received ?? 0;
    if (remote?.endsWith(`:${port}`)) bytes += sent ?? 0;
  }
  return bytes;
}

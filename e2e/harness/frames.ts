// WebSocket frames on the wire: decodes the first byte and the length of all frames that a proxy sees in one direction of a
// connection.

/** One frame. */
export interface Frame {
  opcode: number;
  /** The first reserved bit: the frame begins a compressed message. */
  isCompressed: boolean;
  payloadBytes: number;
}

/** Decodes the bytes that one side of a connection sends, beginning with the head of its handshake. */
export class FrameReader {
  readonly frames: Frame[] = [];
  /** The head of the request or response that precedes the frames. */
  head = '';
  #rest = Buffer.alloc(0);

  /** Takes all bytes, in order. */
  readonly push = (bytes: Buffer): void => {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    if (this.head === '') {
      const end = this.#rest.indexOf('\r\n\r\n');
      if (end < 0) return;
      this.head = this.#rest.subarray(0, end).toString('latin1');
      this.#rest = this.#rest.subarray(end + 4);
    }
    while (this.#take());
  };

  /** The value of the header that offers or accepts extensions. */
  get extensions(): string | undefined {
    return /^sec-websocket-extensions: *(.*)$/im.exec(this.head)?.[1];
  }

  #take(): boolean {
    const [first, second] = this.#rest;
    if (first === undefined || second === undefined) return false;
    const short = second & 0x7f;
    const lengthBytes = short < 126 ? 0 : short === 126 ? 2 : 8;
    const maskBytes = (second & 0x80) === 0 ? 0 : 4;
    if (this.#rest.length < 2 + lengthBytes) return false;
    const payloadBytes = lengthBytes === 0 ? short : Number(`0x${this.#rest.toString('hex', 2, 2 + lengthBytes)}`);
    const end = 2 + lengthBytes + maskBytes + payloadBytes;
    if (this.#rest.length < end) return false;
    this.frames.push({ opcode: first & 0x0f, isCompressed: (first & 0x40) !== 0, payloadBytes });
    this.#rest = this.#rest.subarray(end);
    return true;
  }
}

// Frames as they stand on the wire: what a proxy hears of one connection in one direction, taken apart as far as the
// first byte and the length.

/** One frame. */
export interface Frame {
  opcode: number;
  /** The first reserved bit: a compressed message begins. */
  isCompressed: boolean;
  payloadBytes: number;
}

/** Takes apart what one side of a connection sends, from the head of its handshake on. */
export class FrameReader {
  readonly frames: Frame[] = [];
  /** The head of the request or answer that comes first. */
  head = '';
  #rest = Buffer.alloc(0);

  /** To be called with all bytes, in order. */
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

  /** The value of the header by which extensions are offered and agreed on. */
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

// The one class of the errors that an app receives. The code of an error identifies its cause.

/** The details of an error in addition to its code. */
export interface ErrorDetails {
  /** The name of the event, rpc or record, or the user id. */
  subject?: string | undefined;
  /** The reason that the other side gave. */
  data?: unknown;
  cause?: unknown;
}

/** An error of the client or of the server. Act on `code`, never on the text. */
export class TidewireError extends Error {
  override readonly name = 'TidewireError';
  readonly subject: string | undefined;
  readonly data: unknown;

  constructor(
    readonly code: string,
    message: string,
    details: ErrorDetails = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.subject = details.subject;
    this.data = details.data;
  }
}

/** The error of a request that the server refused with `code`. */
export function refused(code: string, subject?: string): TidewireError {
  const about = subject === undefined ? '' : ` about "${subject}"`;
  return new TidewireError(code, `the server refused a request${about}: ${code}`, { subject });
}

/** The error of a message that exceeds the server's limit. */
export function tooLarge(bytes: number, bytesMax: number | undefined, subject?: string): TidewireError {
  const about = subject === undefined ? '' : ` about "${subject}"`;
  const limit = bytesMax === undefined ? 'the server accepts' : `the ${bytesMax} that the server accepts`;
  const text = `the message${about} has ${bytes} bytes, more than ${limit}: send less at a time, or raise limits.message_bytes_max`;
  return new TidewireError('TOO_LARGE', text, { subject });
}

/** Throws unless `text` is a non-empty text. */
export function checkName(text: unknown, what = 'name'): void {
  if (typeof text !== 'string' || text === '') throw new TidewireError('INVALID_ARGUMENT', `the ${what} must be a text that is not empty`);
}

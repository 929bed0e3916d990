// Why a query is refused. `spec/query.md` lists the codes.

export type QueryErrorCode =
  | 'malformed' | 'too-large' | 'unknown-operator' | 'mixed-operators' | 'bad-operand' | 'bad-path' | 'bad-regex' | 'bad-sort' | 'bad-projection'
  | 'bad-limit';

/** A refused query. */
export class QueryError extends Error {
  override readonly name = 'QueryError';

  constructor(
    readonly code: QueryErrorCode,
    /** JSON Pointer to the refused part of the query; empty for the whole. */
    readonly at: string,
    what: string,
  ) {
    super(`${at || 'query'}: ${what}`);
  }
}

export function refuse(code: QueryErrorCode, at: string, what: string): never {
  throw new QueryError(code, at, what);
}

/** The pointer to the member `key` of what `at` points to. */
export const member = (at: string, key: string | number): string => `${at}/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`;

/** The limits of `spec/query.md`. */
export const LIMITS = {
  queryBytes: 16 * 1024,
  nodes: 200,
  nesting: 12,
  values: 1000,
  segments: 16,
  pathBytes: 256,
  sortKeys: 4,
  projectionPaths: 200,
  limit: 1000,
  offset: 10_000,
  regexBytes: 256,
  regexTextBytes: 64 * 1024,
};

/** Bytes of a text in UTF-8. A lone surrogate has three. */
export function byteLength(text: string): number {
  let bytes = text.length;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.codePointAt(at) ?? 0;
    if (code > 0x7f) bytes += code > 0x7ff ? 2 : 1;
    // A pair has four bytes.
    if (code > 0xffff) at += 1;
  }
  return bytes;
}

// Validates the values that the client sends and receives, with the schemas of any library that implements Standard Schema, version 1
// (https://standardschema.dev). A separate entry, `@tidewire/client/validation`.

import type { Validate, ValueKind } from './connection.js';
import { TidewireError } from './error.js';
import type { Argument, EventsOf, Names, RecordsOf, Result, RpcsOf, Schema, ValueOf } from './schema.js';

/** The part of a Standard Schema that is used here. `validate` must return its result at once, not as a promise. */
export interface StandardSchema<Value = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Value> | Promise<StandardResult<Value>>;
  };
}

export type StandardResult<Value> = { readonly value: Value; readonly issues?: undefined } | { readonly issues: readonly StandardIssue[] };

export interface StandardIssue {
  readonly message: string;
  readonly path?: ReadonlyArray<PropertyKey | { readonly key: PropertyKey }> | undefined;
}

/** A problem of a value and its path, such as `steps[0].text`. Without a path, the problem concerns the whole value. */
export interface Issue {
  readonly message: string;
  readonly path?: string;
}

/** The error of a value that its schema rejects. Its code is VALIDATION_FAILED. */
export class ValidationError extends TidewireError {
  constructor(
    /** Whether the value is a record, an event, or the argument or result of an rpc. */
    readonly kind: ValueKind,
    name: string,
    readonly issues: readonly Issue[],
    cause?: unknown,
  ) {
    const [first] = issues;
    const more = issues.length > 1 ? `, and ${issues.length - 1} more` : '';
    const text = first ? `: ${first.path === undefined ? '' : `${first.path}: `}${first.message}${more}` : '';
    const what = kind === 'argument' || kind === 'result' ? `${kind} of` : kind;
    super('VALIDATION_FAILED', `the ${what} "${name}" does not match its schema${text}`, { subject: name, data: issues, cause });
  }
}

/** The schemas of an app. A `*` in a name matches any text. If several names match, the first one counts. */
export interface Schemas<App extends Schema = {}> {
  records?: { readonly [Name in Names<RecordsOf<App>>]?: StandardSchema<ValueOf<RecordsOf<App>, Name>> };
  events?: { readonly [Name in Names<EventsOf<App>>]?: StandardSchema<ValueOf<EventsOf<App>, Name>> };
  rpcs?: {
    readonly [Name in Names<RpcsOf<App>>]?: {
      argument?: StandardSchema<Argument<ValueOf<RpcsOf<App>, Name>>>;
      result?: StandardSchema<Result<ValueOf<RpcsOf<App>, Name>>>;
    };
  };
}

/** The option `validate` of a client that checks its values against `schemas`. Names without a schema are not checked. */
export function validateWith<App extends Schema = {}>({ records = {}, events = {}, rpcs = {} }: Schemas<App>): Validate {
  const calls = Object.entries<{ argument?: StandardSchema; result?: StandardSchema } | undefined>(rpcs);
  const all: Record<ValueKind, Finder> = {
    record: finder(Object.entries(records)),
    event: finder(Object.entries(events)),
    argument: finder(calls.map(([name, schemas]) => [name, schemas?.argument])),
    result: finder(calls.map(([name, schemas]) => [name, schemas?.result])),
  };
  return (kind, name, value) => {
    const schema = all[kind](name);
    return schema && judged(schema, kind, name, value);
  };
}

type Finder = (name: string) => StandardSchema | undefined;

function finder(entries: ReadonlyArray<[string, unknown]>): Finder {
  const schemas = entries.map(([pattern, schema]) => {
    const text = pattern.split('*').map((part) => part.replace(/[\\^$.+?()[\]{}|/-]/g, '\\$&'));
    return { name: new RegExp(`^${text.join('.*')}$`, 's'), schema: schema as StandardSchema | undefined };
  });
  return (name) => schemas.find((one) => one.name.test(name))?.schema;
}

function judged(schema: StandardSchema, kind: ValueKind, name: string, value: unknown): ValidationError | undefined {
  try {
    const result = schema['~standard'].validate(value);
    if (result instanceof Promise) {
      result.catch(() => undefined);
      return new ValidationError(kind, name, [{ message: 'its schema gives a promise; only schemas that answer at once can be used' }]);
    }
    return result.issues && new ValidationError(kind, name, result.issues.map(issue));
  } catch (cause) {
    return new ValidationError(kind, name, [{ message: `its schema failed: ${String(cause)}` }], cause);
  }
}

function issue({ message, path = [] }: StandardIssue): Issue {
  const keys = path.map((step) => (typeof step === 'object' ? step.key : step));
  const text = keys.map((key) => (typeof key === 'number' ? `[${key}]` : `.${String(key)}`)).join('');
  return path.length > 0 ? { message, path: text.replace(/^\./, '') } : { message };
}

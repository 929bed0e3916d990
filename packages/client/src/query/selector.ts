// Parses selectors into functions. `spec/query.md` has the operators.

import { LIMITS, member, refuse } from './error.js';
import { compare, isObject, own, rank, sortedKeys } from './order.js';
import { ELEMENT, parsePath, type Path, type QueryDocument } from './path.js';
import { parsePattern } from './pattern.js';

/** A condition on a document, or on an element within `$elemMatch`. */
export type Condition = (scope: unknown) => boolean;

const LOGICAL = ['$and', '$or', '$nor'];
const ORDERS: Record<string, (order: number) => boolean> = {
  $lt: (order) => order < 0,
  $lte: (order) => order <= 0,
  $gt: (order) => order > 0,
  $gte: (order) => order >= 0,
};
/** The places of the types in the order of types. Types of extended JSON have none. */
const TYPES: Record<string, number> = { null: 0, number: 1, string: 2, object: 3, array: 4, bool: 5, date: -1, binData: -1, objectId: -1 };

const all = (conditions: Condition[]): Condition => (scope) => conditions.every((condition) => condition(scope));
const any = (conditions: Condition[]): Condition => (scope) => conditions.some((condition) => condition(scope));
const not = (condition: Condition): Condition => (scope) => !condition(scope);
const never: Condition = () => false;

/** Some branch satisfies the test. */
const some = (path: Path, test: (value: unknown) => boolean): Condition => (scope) => path(scope, test);
/** Some branch, or an element of an array that counts as its elements, satisfies the test. */
const each = (path: Path, test: (value: unknown) => boolean): Condition => (scope) =>
  path(scope, (value, expands) => test(value) || (expands && (value as unknown[]).some(test)));

export function parseSelector(where: unknown, at: string): (document: QueryDocument) => boolean {
  // A guard for programs whose selector is unexpectedly missing.
  if (where === undefined || where === null) return never;
  if (typeof where === 'string') return ({ id }) => id === where;
  return new Parser().selector(where, at, false);
}

class Parser {
  private nodes = 0;

  private count(at: string): void {
    this.nodes += 1;
    if (this.nodes > LIMITS.nodes) refuse('too-large', at, `selector has more than ${LIMITS.nodes} paths and operators; split the query`);
  }

  selector(where: unknown, at: string, inElement: boolean): Condition {
    if (!isObject(where)) return refuse('bad-operand', at, 'selector is not an object; write {"field": value}');
    const conditions: Condition[] = [];
    for (const key of sortedKeys(where)) {
      const inner = member(at, key);
      if (key === '$comment') continue;
      const isLogical = LOGICAL.includes(key);
      if (key.startsWith('$') && !isLogical) refuse('unknown-operator', inner, `operator "${key}" is unknown; use $and, $or, $nor or a field`);
      this.count(inner);
      if (isLogical) conditions.push(this.logical(key, where[key], inner, inElement));
      else this.field(parsePath(key, inner, inElement), where[key], inner, conditions);
    }
    return all(conditions);
  }

  private logical(key: string, operand: unknown, at: string, inElement: boolean): Condition {
    if (!Array.isArray(operand) || operand.length === 0) {
      return refuse('bad-operand', at, `operand of "${key}" is not an array with selectors; give at least one`);
    }
    const conditions = operand.map((part, index) => this.selector(part, member(at, index), inElement));
    if (key === '$and') return all(conditions);
    return key === '$or' ? any(conditions) : not(any(conditions));
  }

  private field(path: Path, operand: unknown, at: string, conditions: Condition[]): void {
    const keys = isObject(operand) ? sortedKeys(operand) : [];
    const operators = keys.filter((key) => key.startsWith('$')).length;
    if (operators === 0) {
      checkConstant(operand, at);
      conditions.push(equals(path, operand));
    } else if (operators < keys.length) {
      refuse('mixed-operators', at, 'object has operators and plain keys; put the plain keys into $eq or use a path with dots');
    } else this.operators(path, operand as Record<string, unknown>, at, conditions);
  }

  private operators(path: Path, operand: Record<string, unknown>, at: string, conditions: Condition[]): void {
    for (const key of sortedKeys(operand)) {
      const inner = member(at, key);
      this.count(inner);
      if (key === '$comment' || (key === '$options' && own(operand, '$regex') !== undefined)) continue;
      if (key === '$options') refuse('bad-operand', inner, '$options is without $regex; add $regex or remove it');
      conditions.push(this.operator(path, key, operand[key], own(operand, '$options'), inner));
    }
  }

  private operator(path: Path, key: string, operand: unknown, options: unknown, at: string): Condition {
    switch (key) {
      case '$eq':
      case '$ne': {
        checkConstant(operand, at);
        const condition = equals(path, operand);
        return key === '$eq' ? condition : not(condition);
      }
      case '$in':
      case '$nin': {
        const list = values(operand, at);
        const condition = each(path, (value) => list.some((element) => compare(value, element) === 0));
        return key === '$in' ? condition : not(condition);
      }
      case '$all': {
        const list = values(operand, at);
        return list.length === 0 ? never : all(list.map((element) => equals(path, element)));
      }
      case '$lt':
      case '$lte':
      case '$gt':
      case '$gte': {
        const type = rank(operand);
        if (type === 3 || type === 4) refuse('bad-operand', at, 'operand is an array or object, which has no order here; use a number, text or boolean');
        const holds = ORDERS[key] as (order: number) => boolean;
        return each(path, (value) => rank(value) === type && holds(compare(value, operand)));
      }
      case '$exists': {
        if (typeof operand !== 'boolean') refuse('bad-operand', at, 'operand is not a boolean; use true or false');
        const condition = some(path, (value) => value !== undefined);
        return operand === true ? condition : not(condition);
      }
      case '$type': {
        const names: unknown[] = Array.isArray(operand) ? operand : [operand];
        if (names.length === 0 || names.some((name) => typeof name !== 'string' || !Object.hasOwn(TYPES, name))) {
          refuse('bad-operand', at, 'operand is not a type; use number, string, object, array, bool, null, date, binData or objectId');
        }
        const types = names.map((name) => TYPES[name as string]);
        return each(path, (value) => value !== undefined && types.includes(rank(value)));
      }
      case '$size':
        if (!Number.isInteger(operand) || (operand as number) < 0 || (operand as number) > 0xffff_ffff) {
          refuse('bad-operand', at, 'operand is not a length; use an integer of at least 0');
        }
        return some(path, (value) => Array.isArray(value) && value.length === operand);
      case '$elemMatch':
        return this.element(path, operand, at);
      case '$mod': {
        const [divisor, remainder] = Array.isArray(operand) ? (operand as number[]) : [];
        if (!Array.isArray(operand) || operand.length !== 2 || !operand.every(Number.isSafeInteger) || divisor === 0) {
          refuse('bad-operand', at, 'operand is not [divisor, remainder]; use two integers, the first not 0');
        }
        return each(path, (value) => typeof value === 'number' && value % (divisor as number) === remainder);
      }
      case '$regex': {
        if (typeof operand !== 'string' || (options !== undefined && typeof options !== 'string')) {
          return refuse('bad-operand', at, '$regex and $options are not both strings; use strings');
        }
        let matches: (text: string) => boolean;
        try {
          matches = parsePattern(operand, options ?? '');
        } catch (error) {
          return refuse('bad-regex', at, `regular expression ${(error as Error).message}`);
        }
        return each(path, (value) => typeof value === 'string' && matches(value));
      }
      case '$not': {
        const keys = isObject(operand) ? sortedKeys(operand) : [];
        if (keys.length === 0 || keys.some((key) => !key.startsWith('$'))) {
          refuse('bad-operand', at, 'operand is not an object of operators; use $ne for a value');
        }
        const conditions: Condition[] = [];
        this.operators(path, operand as Record<string, unknown>, at, conditions);
        return not(all(conditions));
      }
      default:
        return refuse('unknown-operator', at, `operator "${key}" is unknown; use an operator of spec/query.md`);
    }
  }

  private element(path: Path, operand: unknown, at: string): Condition {
    if (!isObject(operand)) return refuse('bad-operand', at, 'operand is not an object; use operators or a selector');
    const keys = sortedKeys(operand);
    const isSelector = keys.length === 0 || keys.some((key) => !key.startsWith('$') || LOGICAL.includes(key));
    let condition: Condition;
    if (isSelector) condition = this.selector(operand, at, true);
    else {
      const conditions: Condition[] = [];
      this.operators(ELEMENT, operand, at, conditions);
      condition = all(conditions);
    }
    return some(path, (value) => Array.isArray(value) && value.some((element) => (!isSelector || isObject(element)) && condition(element)));
  }
}

/** Equality; null equals missing. */
const equals = (path: Path, operand: unknown): Condition => each(path, (value) => compare(value, operand) === 0);

function values(operand: unknown, at: string): unknown[] {
  if (!Array.isArray(operand)) return refuse('bad-operand', at, 'operand is not an array; put the value into brackets');
  if (operand.length > LIMITS.values) refuse('too-large', at, `array has ${operand.length} values; use at most ${LIMITS.values}`);
  operand.forEach((element, index) => checkConstant(element, member(at, index)));
  return operand;
}

/** Refuses keys that no stored document has, so a misplaced operator is never read as a value. */
function checkConstant(value: unknown, at: string): void {
  if (Array.isArray(value)) value.forEach((element, index) => checkConstant(element, member(at, index)));
  if (!isObject(value)) return;
  for (const [key, inner] of Object.entries(value)) {
    if (key.startsWith('$')) {
      refuse('bad-operand', member(at, key), 'a value has a key that starts with a dollar sign; operators belong directly behind a path');
    }
    checkConstant(inner, member(at, key));
  }
}

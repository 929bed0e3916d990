// The list of `api.ts` is complete: it has each public member and option of the types of `socket.io`, its scenarios exist and use them, and
// each difference is documented and refused.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { Server, Socket } from '@tidewire/socket.io';
import ts from 'typescript';
import { EVENTS_OF, MEMBERS, OPTIONS, type Entry } from './api.ts';

const FOLDER = dirname(fileURLToPath(import.meta.url));
const SCENARIO_FILES = ['parity.test.ts', 'several.test.ts', 'recovery.test.ts', 'attach.test.ts'];
const read = (...path: string[]): string => readFileSync(join(FOLDER, ...path), 'utf8');

/** The members that the packages `socket.io` and `engine.io` declare for the exported types, by the names of the types. */
function declared(): Map<string, string[]> {
  const file = join(dirname(createRequire(import.meta.url).resolve('socket.io/package.json')), 'dist/index.d.ts');
  const program = ts.createProgram([file], { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, skipLibCheck: true });
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(file);
  const module = source && checker.getSymbolAtLocation(source);
  assert.ok(module, 'the types are read');
  const isPublic = (member: ts.Symbol): boolean => {
    const declaration = member.declarations?.[0];
    if (!declaration || /^[_#]/.test(member.name)) return false;
    const isHidden = ts.getCombinedModifierFlags(declaration) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected);
    return !isHidden && /\/node_modules\/(socket|engine)\.io\//.test(declaration.getSourceFile().fileName);
  };
  return new Map(
    checker.getExportsOfModule(module).map((exported) => {
      const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
      const members = checker.getDeclaredTypeOfSymbol(symbol).getProperties();
      return [exported.name, members.filter(isPublic).map(({ name }) => name)];
    }),
  );
}

/** The sources of the scenarios by their titles. */
function scenarios(): Map<string, string> {
  const parts = SCENARIO_FILES.flatMap((file) => read(file).split(/\n(?= {2}'[^'\n]+': async \()/));
  return new Map(parts.flatMap((part) => {
    const title = /^ {2}'([^'\n]+)': async/.exec(part)?.[1];
    return title === undefined ? [] : [[title, part] as const];
  }));
}

const TYPES = declared();
const SCENARIOS = scenarios();
const GUIDE = read('..', '..', 'docs', 'from-socketio.md');

/** All entries with the names of their members. */
const entries: Array<[of: string, name: string, entry: Entry]> = [...Object.entries(MEMBERS), ...Object.entries(EVENTS_OF), ['ServerOptions', OPTIONS] as const].flatMap(
  ([of, list]) => Object.entries(list).map(([name, entry]): [string, string, Entry] => [of, name, entry]),
);

for (const of of [...Object.keys(MEMBERS), 'ServerOptions']) {
  test(`the list has each public member of ${of}`, () => {
    const known = of === 'ServerOptions' ? OPTIONS : MEMBERS[of];
    assert.ok((TYPES.get(of)?.length ?? 0) > 5, 'the type has members');
    const missing = TYPES.get(of)?.filter((name) => !(name in (known ?? {})));
    assert.deepEqual(missing, []);
  });
}

test('each scenario of the list exists and uses its member', () => {
  const wrong = entries.filter(([of, name, entry]) => {
    if (!('scenario' in entry)) return false;
    // An option belongs to the server of all scenarios of a file.
    const source = of === 'ServerOptions' ? read('recovery.test.ts') : SCENARIOS.get(entry.scenario);
    return !source || !new RegExp(`(?<![\\w-])${name}(?![\\w-])`).test(source);
  });
  assert.deepEqual(wrong, []);
  assert.ok(!SCENARIOS.has('no such scenario'));
});

test('the guide names each difference', () => {
  const unnamed = entries.filter(([, name, entry]) => 'difference' in entry && !new RegExp(`\`[^\`]*\\b${name}\\b[^\`]*\``).test(GUIDE));
  assert.deepEqual(unnamed.map(([of, name]) => `${of}.${name}`), []);
});

test('each difference that is refused is an error that names it', () => {
  const io = new Server({});
  const use = (of: string, name: string): void => {
    const target = (of === 'Server' ? io : Socket.prototype) as object;
    const value: unknown = Reflect.get(target, name, target);
    if (typeof value === 'function') (value as (argument: unknown) => void).call(target, {});
  };
  for (const [of, name, entry] of entries) {
    if (!('difference' in entry) || entry.difference !== 'refused') continue;
    const expected = new RegExp(`@tidewire/socket\\.io does not have .*\\b${name}\\b.*; \\S`);
    if (of === 'ServerOptions') assert.throws(() => new Server({ [name]: OPTIONS[name]?.value } as never), expected, name);
    else assert.throws(() => use(of, name), expected, `${of}.${name}`);
  }
  assert.equal(io.serveClient(), false);
  assert.throws(() => io.serveClient(true), /io\.serveClient\(\); load the client/);
  assert.equal(io.serveClient(false), io);
  assert.throws(() => new Server({ url: 'http://localhost:1', key: 'key', pingTimeout: 1 }), /the option pingTimeout for a running server; set network\.heartbeat_timeout/);
  assert.equal(io.path('/other').path(), '/other');
  assert.throws(() => io.listen(3000), /the path of the server is/);
});

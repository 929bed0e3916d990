// The table of test coverage: its rows are the methods in the client's type declarations, its marks are the claims of the tests. If a
// cell is neither claimed nor listed here as meaningless, with the reason, the runner fails.

import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import ts from 'typescript';
import { SITUATIONS, type Situation } from './coverage.ts';

/** The package's declaration files of the classes and interfaces that applications use. */
const DECLARATIONS = [
  'deepstream-client',
  'event/event-handler',
  'rpc/rpc-handler',
  'rpc/rpc-response',
  'presence/presence-handler',
  'record/record-handler',
  'record/record',
  'record/list',
  'record/dequeue',
  'record/anonymous-record',
  'util/listener',
  'util/emitter',
];
const CLASSES = [
  ...['DeepstreamClient', 'EventHandler', 'RPCHandler', 'RPCResponse', 'PresenceHandler', 'RecordHandler'],
  ...['Record', 'List', 'Dequeue', 'AnonymousRecord', 'ListenResponse', 'Emitter'],
];

const ELSEWHERE = SITUATIONS.slice(1);

/** Cells for which no test is possible. */
const MEANINGLESS: Array<{ methods: RegExp; situations: readonly Situation[]; why: string }> = [
  { methods: /^Emitter\.|\.getUid$/, situations: ELSEWHERE, why: 'sends no request' },
  { methods: /OfflineStorage$/, situations: ELSEWHERE, why: 'Node has no such storage; sends no request' },
  {
    methods: /\.(getConnectionState|eventNames|providerNames|names|get|getEntries|getFirst|getLast|isEmpty)$/,
    situations: ['refusal'],
    why: 'returns what the client knows; sends no request',
  },
  { methods: /\.(close|pause|resume)$/, situations: ['refusal'], why: 'sends no request' },
  {
    methods: /\.(unsubscribe|unlisten|unprovide|discard)$/,
    situations: ['refusal'],
    why: 'leaving is always allowed',
  },
  {
    methods: /^(Record|List|Dequeue|AnonymousRecord)\.subscribe$/,
    situations: ['refusal'],
    why: 'a callback within the client; only opening the record sends a request',
  },
  { methods: /\.setMergeStrategy(RegExp)?$/, situations: ['refusal'], why: 'sends no request' },
  {
    methods: /^(RPC|Listen)Response\./,
    situations: ['before login'],
    why: 'the object arrives with a request, and no request arrives before the login',
  },
  { methods: /^ListenResponse\.onStop$/, situations: ['refusal'], why: 'a callback within the client' },
  { methods: /^RecordHandler\.delete$/, situations: ['success'], why: 'throws in every call' },
  {
    methods: /^AnonymousRecord\.erase(WithAck)?$/,
    situations: ['success', 'loss', 'before login', 'after close'],
    why: 'throws in every call',
  },
];

/** Every public method of the client, read from its declarations. */
export function publicMethods(): string[] {
  const entry = createRequire(import.meta.url).resolve('@deepstream/client');
  return DECLARATIONS.flatMap((name) => {
    const path = join(dirname(entry), `${name}.d.ts`);
    const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest);
    return source.statements.flatMap(methodsOf);
  });
}

function methodsOf(statement: ts.Statement): string[] {
  if (!ts.isClassDeclaration(statement) && !ts.isInterfaceDeclaration(statement)) return [];
  const owner = statement.name?.text ?? '';
  if (!CLASSES.includes(owner)) return [];
  const names = [...statement.members].filter(isPublicMethod).map((member) => (member.name as ts.Identifier).text);
  return [...new Set(names)].map((name) => `${owner}.${name}`);
}

function isPublicMethod(member: ts.ClassElement | ts.TypeElement): boolean {
  const modifiers = ts.canHaveModifiers(member) ? ts.getModifiers(member) : undefined;
  if (modifiers?.some(({ kind }) => kind === ts.SyntaxKind.PrivateKeyword)) return false;
  if (ts.isMethodDeclaration(member) || ts.isMethodSignature(member)) return true;
  return ts.isPropertySignature(member) && member.type !== undefined && ts.isFunctionTypeNode(member.type);
}

/** The table as text, and the cells that are neither claimed nor meaningless. */
export function coverageReport(claims: string): { table: string; holes: string[] } {
  const claimed = new Set(readdirSync(claims).flatMap((file) => readFileSync(join(claims, file), 'utf8').split('\n')));
  const holes: string[] = [];
  const rows = publicMethods().map((method) => {
    const cells = SITUATIONS.map((situation) => {
      if (claimed.has(`${method}\t${situation}`)) return 'tested';
      if (MEANINGLESS.some((rule) => rule.methods.test(method) && rule.situations.includes(situation))) return '-';
      holes.push(`${method}: ${situation}`);
      return 'HOLE';
    });
    return row(method, cells);
  });
  const reasons = MEANINGLESS.map(({ methods, situations, why }) => `  ${methods.source} (${situations.join(', ')}): ${why}`);
  const table = [row('method', SITUATIONS), ...rows, '', 'not tested, because it means nothing:', ...reasons].join('\n');
  return { table, holes };
}

function row(method: string, cells: readonly string[]): string {
  return method.padEnd(42) + cells.map((cell) => cell.padEnd(14)).join('').trimEnd();
}

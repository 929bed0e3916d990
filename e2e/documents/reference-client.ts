// `docs/client-api.md`, made of the TypeScript sources of the client by the compiler: what each entry exports, with its comments.

import { join } from 'node:path';
import ts from 'typescript';
import { REPOSITORY } from './block.ts';

const SOURCES = join(REPOSITORY, 'packages/client/src');

export function clientReference(entries: string[]): string {
  const files = entries.map((entry) => join(SOURCES, `${entry}.ts`));
  const program = ts.createProgram(files, { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, strict: true, noEmit: true });
  const checker = program.getTypeChecker();
  const page = [
    '# The client, name by name',
    '',
    'This page is made of the comments and types in `packages/client/src`, by `npm --prefix e2e run references`. [packages/client](../packages/client/README.md) and the',
    'guides show them in use.',
  ];
  files.forEach((file, i) => {
    const entry = entries[i] === 'index' ? '@tidewire/client' : `@tidewire/client/${entries[i]}`;
    page.push('', `## \`${entry}\``);
    const source = program.getSourceFile(file);
    const symbol = source && checker.getSymbolAtLocation(source);
    if (symbol === undefined) throw new Error(`${file} exports nothing`);
    const exported = checker.getExportsOfModule(symbol).sort((one, other) => (one.name < other.name ? -1 : 1));
    for (const one of exported) {
      const meant = one.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(one) : one;
      const declarations = (meant.declarations ?? []).filter((declaration) => declaration.getSourceFile().fileName.startsWith(SOURCES));
      if (declarations.length > 0) page.push('', `### \`${one.name}\``, ...declarations.flatMap((declaration) => described(declaration, checker)));
    }
  });
  return `${page.join('\n')}\n`;
}

/** A declaration: its comment, and its members or its type. */
function described(declaration: ts.Declaration, checker: ts.TypeChecker): string[] {
  const lines: string[] = [];
  const text = comment(declaration, checker);
  if (text !== '') lines.push('', text);
  if (ts.isInterfaceDeclaration(declaration) || ts.isClassDeclaration(declaration)) {
    const base = declaration.heritageClauses?.map((clause) => clause.getText()).join(' ');
    const members = (declaration.members as ts.NodeArray<ts.ClassElement | ts.TypeElement>).filter(isPublic);
    if (base !== undefined) lines.push('', `\`${base}\``);
    if (members.length > 0) {
      lines.push('', '| Member | |', '|---|---|');
      for (const member of members) lines.push(`| \`${signature(member).replaceAll('|', '\\|')}\` | ${comment(member, checker).replaceAll('|', '\\|')} |`);
    }
  } else {
    lines.push('', `\`${signature(declaration)}\``);
  }
  return lines;
}

function isPublic(member: ts.ClassElement | ts.TypeElement): boolean {
  const flags = ts.getCombinedModifierFlags(member as ts.Declaration);
  const isHidden = (flags & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) !== 0 || ts.isClassStaticBlockDeclaration(member);
  const isInternal = ts.getJSDocTags(member).some(({ tagName }) => tagName.text === 'internal');
  // A constructor with a part of the client among its arguments is the client's own.
  const isOwn = ts.isConstructorDeclaration(member) && member.parameters.some((one) => one.getFullText().includes('@internal'));
  return !isHidden && !isInternal && !isOwn && !(member.name !== undefined && ts.isPrivateIdentifier(member.name));
}

/** The text of a declaration in one line, without comments, bodies and values. */
function signature(node: ts.Node): string {
  const body = (node as ts.FunctionLikeDeclaration).body;
  const value = ts.isPropertyDeclaration(node) && node.type !== undefined ? node.initializer : undefined;
  const end = body?.pos ?? (value === undefined ? undefined : (node as ts.PropertyDeclaration).type?.end) ?? node.end;
  const text = node.getSourceFile().text.slice(node.getStart(), end).replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/^\s*\/\/.*$/gm, '');
  return text.replaceAll(/\s+/g, ' ').replace(/^export (declare )?/, '').replace(/[;,]?\s*$/, '').replaceAll('( ', '(').replaceAll(', )', ')');
}

function comment(node: ts.Node, checker: ts.TypeChecker): string {
  const name = (node as ts.NamedDeclaration).name;
  const symbol = name && checker.getSymbolAtLocation(name);
  const own = ts.getJSDocCommentsAndTags(node).filter(ts.isJSDoc).map((doc) => ts.getTextOfJSDocComment(doc.comment) ?? '').join(' ');
  const text = own !== '' ? own : ts.displayPartsToString(symbol?.getDocumentationComment(checker));
  const plain = text.replaceAll(/\s+/g, ' ').trim();
  return plain === '' || /[.:!?]$/.test(plain) ? plain : `${plain}.`;
}

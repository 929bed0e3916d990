// The paths as ARCHITECTURE.md describes them: the column "File" of a section's table names the stops, the paragraph that begins with
// "Touched" the other files.

/** The files of one section of ARCHITECTURE.md. */
export interface Described {
  stops: string[];
  touched: string[];
}

/** Reads the section with this title. */
export function described(document: string, title: string): Described {
  const [, section] = document.split(`\n## ${title}\n`);
  if (section === undefined) throw new Error(`ARCHITECTURE.md has no section "${title}"`);
  const lines = (section.split('\n## ')[0] ?? '').split('\n');
  const rows = lines.filter((line) => /^\| (\d|-)+/.test(line)).map((line) => line.split('|')[3] ?? '');
  const touched = lines.filter((line) => line.startsWith('Touched'));
  return { stops: unique(rows.flatMap(filesIn)), touched: unique(touched.flatMap(filesIn)) };
}

/**
 * The files that a text names in backticks. `core/src/hub.rs` begins a crate; `hub/due.rs` after it is in the same crate's `src`.
 * Braces abbreviate: `record/{owner,run}.rs`.
 */
export function filesIn(text: string): string[] {
  let folder = '';
  return [...text.matchAll(/`([\w/{},-]+\.rs)`/g)].flatMap(([, path = '']) => {
    const [, crate, rest] = /^([\w-]+\/src\/)(.*)$/.exec(path) ?? [];
    folder = crate ?? folder;
    if (folder === '') throw new Error(`${path} does not say its crate`);
    return expanded(rest ?? path).map((file) => folder + file);
  });
}

function unique(files: string[]): string[] {
  return [...new Set(files)].sort();
}

function expanded(path: string): string[] {
  const [, before = '', names, after = ''] = /^(.*?)\{([^}]*)\}(.*)$/.exec(path) ?? [];
  return names === undefined ? [path] : names.split(',').flatMap((name) => expanded(before + name + after));
}

/** The files that are in the first list only. */
export function without(files: string[], others: string[]): string[] {
  return files.filter((file) => !others.includes(file));
}

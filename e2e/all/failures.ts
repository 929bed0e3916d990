// The lines of a suite's output that name what has failed: of Node's test runner (TAP or with marks), of cargo, and of programs that end with
// an error. The report repeats them at its end, because the log of a whole run is long.

const FAILURES = [
  /^\s*not ok \d+ - /,
  /^\s*✖ (?!failing tests)/,
  /^test .* \.\.\. FAILED$/,
  /^\s*error: ['|]/,
  /^error(\[E\d+\])?: /,
  /^\s*(\w*Error|panicked at|thread '.*' panicked at)\b/,
];

/** How much of a line is shown. */
const LENGTH_MAX = 200;

/** The first `count` lines of `output` that name a failure, each once. */
export function failureLines(output: string, count: number): string[] {
  const found = output.split('\n').filter((line) => FAILURES.some((pattern) => pattern.test(line)));
  const lines = found.map((line) => line.trim().replace(/ \(\d[\d.]*ms\)$/, '').slice(0, LENGTH_MAX));
  return [...new Set(lines)].slice(0, count);
}

// Reports rules for which Tidewire decides differently from JavaScript.
//
// Reads lines of JSON from stdin, written by crates/tidewire-rules/tests/node_parity.rs: documents, and rules with
// Tidewire's results. Every rule becomes a function by `new Function`, as in deepstream. Writes one line per
// disagreement and a summary at the end.

import { createInterface } from 'node:readline'

const ARGUMENTS = ['_', 'user', 'data', 'oldData', 'now', 'action', 'name', '$id', '$room']

const parse = (text) => text === null ? undefined : JSON.parse(text)

/** Escapes every unit that is not printable ASCII, so that lone surrogates survive. */
const escaped = (text) => text.replace(/[^ -[\]-~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)

/** A value as text with its type. */
function show (value) {
  if (value === null) return 'null'
  if (typeof value === 'number') return `number ${Object.is(value, -0) ? '-0' : value}`
  if (typeof value !== 'object') return `${typeof value} ${escaped(String(value))}`
  try {
    return `object ${escaped(String(value))}`
  } catch {
    return 'object'
  }
}

function evaluate (rule, scope) {
  // A rule that is not an expression is a fault of the generator and must not count as a rule that throws.
  const run = new Function(...ARGUMENTS, `return (${rule}\n)`)
  try {
    return show(run(...scope))
  } catch {
    return 'throws'
  }
}

/** deepstream's `_()`, with all records loaded. */
function reference (records) {
  const values = new Map(records.map(([name, text]) => [name, parse(text)]))
  return (name) => {
    if (name === undefined) return undefined
    if (typeof name !== 'string') throw new TypeError('unsupported type')
    if (name.includes('undefined')) return undefined
    return values.has(name) ? values.get(name) : null
  }
}

let pairs = 0
for await (const line of createInterface({ input: process.stdin })) {
  const { user, data, oldData, now, action, name, variables, records, rules } = JSON.parse(line)
  const userData = parse(user.data) ?? null
  const scope = [
    reference(records),
    { id: user.id, isAuthenticated: user.id !== 'open', data: userData },
    parse(data), parse(oldData) ?? null, now, action, name, ...variables
  ]
  for (const [rule, ours] of rules) {
    pairs += 1
    let node
    try {
      node = evaluate(rule, scope)
    } catch (error) {
      node = `refused: ${error.message}`
    }
    if (node !== ours) console.log(JSON.stringify({ rule, ours, node, data, oldData }))
  }
}
console.log(JSON.stringify({ summary: { pairs } }))

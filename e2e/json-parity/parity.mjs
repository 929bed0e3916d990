// Reports differences between Tidewire's JSON patches and the result of the same patch in JavaScript.
//
// Reads one case per line from stdin, written by crates/tidewire-core/tests/json_parity.rs; writes one line per
// disagreement and a summary at the end. The expected result is JSON.parse, set or delete each path, JSON.stringify.
// If @deepstream/client is installed next to this folder, its own setValue must give the same.

import { createRequire } from 'node:module'

const FORBIDDEN = ['__proto__', 'constructor', 'prototype']
const INDEX_MAX = 2 ** 32 - 2

/** Elements of null ("null," each) that fit into the limit of the Rust side, 1 MiB. */
const NULLS_MAX = 2 ** 20 / 5

/** A refused patch; the message is the name of the Rust error. */
class Refused extends Error {}

/** The client's own setValue, or undefined if it is not installed. */
function clientSetValue () {
  try {
    return createRequire(import.meta.url)('@deepstream/client/dist/src/record/json-path.js').setValue
  } catch (error) {
    if (error.code === 'MODULE_NOT_FOUND') return undefined
    throw error
  }
}

/** A path as keys (strings) and indices (numbers): section 8.5 of the protocol. */
function tokens (path) {
  const found = []
  for (const part of path.split('.').map((text) => text.trim()).filter((text) => text !== '')) {
    const [key, ...brackets] = part.split(/[[\]]/)
    if (FORBIDDEN.includes(key)) throw new Refused('Forbidden')
    found.push(key)
    for (const bracket of brackets.filter((text) => text !== '')) {
      const index = Number(bracket)
      if (!Number.isInteger(index) || index < 0 || index > INDEX_MAX) throw new Refused('Index')
      found.push(index)
    }
  }
  if (found.length === 0) throw new Refused('Empty')
  return found
}

const isContainer = (value) => typeof value === 'object' && value !== null
const own = (container, token) => Object.hasOwn(container, token) ? container[token] : undefined

/** Writes one property as JavaScript does, except that an array's length accepts whole numbers only. */
function write (container, token, value) {
  if (Array.isArray(container) && token === 'length') {
    const isLength = Number.isInteger(value) && value >= 0 && value < 2 ** 32
    if (!isLength) throw new Refused('ArrayLength')
    if (value - container.length > NULLS_MAX) throw new Refused('TooLarge')
  }
  container[token] = value
}

/** Sets the path in place, or deletes it if the value is undefined. */
function apply (root, path, value) {
  if (!isContainer(root)) throw new Refused('NotContainer')
  let container = root
  path.slice(0, -1).forEach((token, place) => {
    let next = own(container, token)
    if (!isContainer(next)) {
      const following = path[place + 1]
      next = typeof following === 'number' ? new Array(following).fill(null) : {}
      write(container, token, next)
    }
    container = next
  })
  const last = path.at(-1)
  if (value !== undefined) {
    write(container, last, value)
  } else if (Array.isArray(container) && last === 'length') {
    throw new Refused('ArrayLength')
  } else {
    delete container[last]
  }
}

/** The value at the path, as far as JSON text contains it: an array's length is not part of its text. */
function find (root, path) {
  return path.reduce((value, token) => {
    if (!isContainer(value) || (Array.isArray(value) && token === 'length')) return undefined
    return own(value, token)
  }, root)
}

/** The value after a round trip through JSON text, which removes holes, infinities and -0. */
const settle = (value) => JSON.parse(JSON.stringify(value))

function isEqual (left, right) {
  if (!isContainer(left) || !isContainer(right)) return Object.is(left, right)
  if (Array.isArray(left) !== Array.isArray(right)) return false
  const keys = Object.keys(left)
  return keys.length === Object.keys(right).length &&
    keys.every((key) => Object.hasOwn(right, key) && isEqual(left[key], right[key]))
}

function isJson (text) {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** The expected document after all patches; each patch applies to the result of the previous one. */
function expectedOf (document, patches) {
  const paths = patches.map(({ path }) => tokens(path))
  return patches.reduce((before, { data }, place) => {
    const after = settle(before)
    apply(after, paths[place], data === undefined ? undefined : settle(data))
    return settle(after)
  }, document)
}

const setValue = clientSetValue()
const outcomes = {}

/** The disagreement in this case, or undefined. */
function disagreement ({ document, patches, ours, found, text, accepted }) {
  if (isJson(text) !== accepted) return `JSON.parse accepts: ${!accepted}: ${text}`
  const parsed = JSON.parse(document)
  const list = JSON.parse(patches)
  let expected
  try {
    expected = expectedOf(parsed, list)
  } catch (error) {
    if (!(error instanceof Refused)) throw error
    outcomes[error.message] = (outcomes[error.message] ?? 0) + 1
    return ours.refused === error.message ? undefined : `expected the refusal ${error.message}`
  }
  const outcome = isEqual(expected, settle(parsed)) ? 'unchanged' : 'changed'
  outcomes[outcome] = (outcomes[outcome] ?? 0) + 1
  const shown = JSON.stringify(expected)
  if (ours.document === undefined) return `expected ${shown}`
  if (!isEqual(settle(JSON.parse(ours.document)), expected)) return `expected ${shown}`
  if (setValue !== undefined) {
    const byClient = list.reduce((before, { path, data }) => setValue(before, path, data), parsed)
    if (!isEqual(settle(byClient), expected)) return `the client makes ${JSON.stringify(byClient)} of it`
  }
  const there = find(expected, tokens(list.at(-1).path))
  const foundValue = found === null ? undefined : settle(JSON.parse(found))
  return isEqual(foundValue, there) ? undefined : `expected to find ${JSON.stringify(there)}`
}

/** The lines of stdin. Not node:readline, which also splits at U+2028. */
async function * lines () {
  let rest = ''
  for await (const chunk of process.stdin.setEncoding('utf8')) {
    const found = (rest + chunk).split('\n')
    rest = found.pop()
    yield * found
  }
}

let cases = 0
for await (const line of lines()) {
  cases += 1
  const reason = disagreement(JSON.parse(line))
  if (reason !== undefined) console.log(JSON.stringify({ reason, case: line }))
}
console.log(JSON.stringify({ summary: { cases, outcomes, client: setValue !== undefined } }))

// @ts-check
// Ranks the pages of the documentation for a query, with the index that the server's build writes (`search.rs`).
//
// A word counts by its rarity (BM25), at the page and at its best section, and more if it is in the title or in the heading. A
// page counts less for each word of the query that it does not have.

/**
 * @typedef {{ pages: [address: string, title: string, group: string][],
 *   sections: [page: number, anchor: string, heading: string, words: number][],
 *   words: Record<string, string> }} Index
 * @typedef {{ address: string, title: string, heading: string, group: string }} Hit
 * @typedef {Map<number, number>} Counts
 * @typedef {{ index: Index, words: Map<string, Counts>, titles: Set<string>[], headings: Set<string>[], lengths: number[] }} Prepared
 */

/** The share of a word in the title of a page, and in the heading of a section, compared with one that the text repeats forever. */
const TITLE_SHARE = 2
const HEADING_SHARE = 1
/** The weight of the best section compared with the page. */
const SECTION_WEIGHT = 0.9
/** The usual constants of BM25, for pages and sections of very different lengths. */
const SATURATION = 1.2
const PAGE_LENGTH_SHARE = 0.9
const SECTION_LENGTH_SHARE = 0.3
/** How strongly the share of the query's words that a page has changes its score. */
const COVERAGE_POWER = 0.5
/** The weight of pages for engineers who work on the server. */
const INTERNAL_WEIGHT = 0.4
/** The weight of a word of the documents that means the same as a word of the query. */
const SYNONYM_WEIGHT = 0.7
const HITS_MAX = 8
/** Words of questions that say nothing about their subject. Numbers do not, either: they are examples. */
const COMMON = new Set(
  ('a about all an and any are as at be been but by can could do does for from get give had has have how i if in instead into is it its ' +
    'just many may me mean means much my need no not of on or our see should show so some that the their them then there they this to ' +
    'use using want was we what when where which while who why will with without would you your').split(' '),
)
/** Words of readers who do not know the words of these documents yet, by their stems. */
const SYNONYMS = new Map(Object.entries({
  backend: 'provider',
  collection: 'list',
  curl: 'http',
  database: 'store',
  db: 'store',
  document: 'record',
  function: 'procedure rpc',
  https: 'tls',
  internet: 'connection offline',
  message: 'event',
  missed: 'gap history',
  offline: 'connection',
  online: 'presence',
  owner: 'permission',
  people: 'user client',
  person: 'user client',
  postgres: 'postgresql',
  ram: 'memory',
  settings: 'option configuration',
  ssl: 'tls',
  update: 'upgrade',
}).map(([word, others]) => [stem(word), others.split(' ').map(stem)]))

/** @param {string} text */
export function wordsOf(text) {
  return text.toLowerCase().split(/[^\p{Alphabetic}\p{N}_]+/u).filter((word) => word.length > 1)
}

/**
 * Words with the same stem count as the same word.
 * @param {string} word
 */
export function stem(word) {
  if (word.length < 4 || word.includes('_')) return word
  const singular = word.replace(/ie[sd]$/, 'y').replace(/([^su])s$/, '$1')
  const [, base = singular] = /^(.*[aeiouy].*)(?:ing|ed|ion)$/.exec(singular) ?? []
  return (base.length > 2 ? base : singular).replace(/([bdgklmnprt])\1$/, '$1').replace(/(?<=...)e$/, '')
}

/**
 * @param {Index} index
 * @returns {Prepared}
 */
export function prepared(index) {
  /** @type {Prepared['words']} */
  const words = new Map()
  for (const [word, postings] of Object.entries(index.words)) {
    const key = stem(word)
    /** @type {Counts} */
    const counts = words.get(key) ?? new Map()
    words.set(key, counts)
    let section = 0
    for (const posting of postings.split(' ')) {
      const [distance = '', count = '1'] = posting.split(':')
      section += parseInt(distance, 36)
      add(counts, section, parseInt(count, 36))
    }
  }
  /** @type {(text: string) => Set<string>} */
  const stems = (text) => new Set(wordsOf(text).map(stem))
  const lengths = index.pages.map(() => 0)
  for (const [page, , , length] of index.sections) lengths[page] = (lengths[page] ?? 0) + length
  const headings = index.sections.map(([, anchor, heading]) => stems(anchor === '' ? '' : heading))
  return { index, words, titles: index.pages.map(([, title]) => stems(title)), headings, lengths }
}

/**
 * The best pages for a query, each with its best section.
 * @param {Prepared} prepared
 * @param {string} query
 * @returns {Hit[]}
 */
export function hits(prepared, query) {
  const { index, titles, headings, lengths } = prepared
  const all = wordsOf(query)
  const rare = all.filter((word) => !COMMON.has(word) && !/^\d+$/.test(word))
  const wanted = [...new Set(rare.length > 0 ? rare : all)]
  const ofPages = scorer(lengths, PAGE_LENGTH_SHARE)
  const ofSections = scorer(index.sections.map(([, , , length]) => length), SECTION_LENGTH_SHARE)
  /** @type {Counts} */
  const pages = new Map()
  /** @type {Counts} */
  const sections = new Map()
  // How many words of the query a page has.
  /** @type {Counts} */
  const found = new Map()
  for (const word of wanted) {
    const same = meanings(word)
    // The last word may be incomplete.
    const isOpen = word === all.at(-1) && !/\s$/.test(query)
    const inSections = occurrences(prepared, same, headings, isOpen ? word : '')
    /** @type {Counts} */
    const inPages = new Map()
    for (const [section, count] of inSections) add(inPages, index.sections[section]?.[0] ?? 0, count)
    titles.forEach((title, page) => has(title, same) > 0 && add(inPages, page, 0))
    const rarity = Math.log(1 + index.pages.length / (inPages.size + 0.5))
    for (const [page, count] of inPages) {
      add(pages, page, rarity * (ofPages(page, count) + TITLE_SHARE * has(titles[page], same)))
      add(found, page, 1)
    }
    for (const [section, count] of inSections) {
      add(sections, section, rarity * (ofSections(section, count) + HEADING_SHARE * has(headings[section], same)))
    }
  }
  const ranked = [...pages].map(([page, score]) => {
    const section = bestOf(page, index, sections)
    const weight = index.pages[page]?.[2] === 'Internals' ? INTERNAL_WEIGHT : 1
    const coverage = (found.get(page) ?? 0) / wanted.length
    return { page, section, score: weight * coverage ** COVERAGE_POWER * (score + SECTION_WEIGHT * (sections.get(section) ?? 0)) }
  })
  return ranked.sort((one, other) => other.score - one.score).slice(0, HITS_MAX).map(({ page, section }) => {
    const [address = '', title = '', group = ''] = index.pages[page] ?? []
    const [, anchor = '', heading = ''] = index.sections[section] ?? []
    return { address: anchor === '' ? address : `${address}#${anchor}`, title, heading: anchor === '' ? '' : heading, group }
  })
}

/**
 * The word with weight 1, and words that mean the same. An error code is explained by pages about errors.
 * @param {string} word
 * @returns {Map<string, number>}
 */
function meanings(word) {
  const others = word.includes('_') ? [stem('errors')] : (SYNONYMS.get(stem(word)) ?? [])
  return new Map([...others.map((other) => /** @type {const} */ ([other, SYNONYM_WEIGHT])), [stem(word), 1]])
}

/**
 * The best section of a page; its first one if none has a word.
 * @param {number} page
 * @param {Index} index
 * @param {Counts} sections
 */
function bestOf(page, index, sections) {
  let best = index.sections.findIndex(([of]) => of === page)
  for (let at = best; index.sections[at]?.[0] === page; at += 1) {
    if ((sections.get(at) ?? 0) > (sections.get(best) ?? 0)) best = at
  }
  return best
}

/**
 * @param {Counts} counts
 * @param {number} key
 * @param {number} count
 */
function add(counts, key, count) {
  counts.set(key, (counts.get(key) ?? 0) + count)
}

/**
 * The greatest weight of the words that a heading has; 0 if it has none of them.
 * @param {Set<string> | undefined} heading
 * @param {Map<string, number>} words
 */
function has(heading, words) {
  let most = 0
  for (const [word, weight] of words) if (heading?.has(word)) most = Math.max(most, weight)
  return most
}

/**
 * The sections with one of the words, or with a word that begins so if none of them is known.
 * @param {Prepared} prepared
 * @param {Map<string, number>} same
 * @param {Set<string>[]} headings
 * @param {string} beginning
 */
function occurrences({ words }, same, headings, beginning) {
  /** @type {Counts} */
  const found = new Map()
  for (const [word, weight] of same) for (const [section, count] of words.get(word) ?? []) add(found, section, count * weight)
  headings.forEach((heading, section) => has(heading, same) > 0 && add(found, section, 0))
  if (found.size > 0 || beginning === '') return found
  for (const [word, sections] of words) {
    if (word.startsWith(beginning)) for (const [section, count] of sections) add(found, section, count)
  }
  return found
}

/**
 * The score of a count in a document: between 0 and 1, less in a long document.
 * @param {number[]} lengths
 * @param {number} lengthShare
 * @returns {(document: number, count: number) => number}
 */
function scorer(lengths, lengthShare) {
  const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length
  return (document, count) => {
    const length = (lengths[document] ?? 0) / mean
    return count / (count + SATURATION * (1 - lengthShare + lengthShare * length))
  }
}

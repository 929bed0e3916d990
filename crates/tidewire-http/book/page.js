// @ts-check
// What a page of the documentation does beyond its text: search, copy buttons, and the place in menu and outline. Without
// scripts the page is complete, and its menu leads everywhere.

import { hits, prepared } from './search.js'

/** How long a button shows that it has copied. */
const COPIED_MS = 2_000
const ROOT = new URL('.', import.meta.url)

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string>} attributes
 * @param {(Node | string)[]} children
 */
function element(tag, attributes, ...children) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...children)
  return made
}

function addSearch() {
  const field = element('input', {
    type: 'search',
    'aria-label': 'Search the documentation',
    placeholder: 'Search',
    autocomplete: 'off',
    spellcheck: 'false',
    'aria-keyshortcuts': '/',
  })
  const list = element('ul', {})
  const status = element('p', { role: 'status' })
  const found = element('div', { class: 'hits' }, status, list)
  found.hidden = true
  const search = element('div', { class: 'search', role: 'search' }, field, found)
  document.querySelector('.home')?.after(search)

  /** @type {Promise<import('./search.js').Prepared> | undefined} */
  let loading
  const load = () => {
    loading ??= fetch(new URL('search.json', ROOT)).then(async (answer) => {
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`)
      return prepared(await answer.json())
    })
    return loading
  }
  const links = () => [...list.querySelectorAll('a')]
  const show = async () => {
    const query = field.value
    /** @type {import('./search.js').Hit[]} */
    let pages = []
    let text = 'The search index could not be loaded.'
    try {
      pages = hits(await load(), query)
      text = pages.length === 0 ? 'No page has these words.' : `${pages.length} ${pages.length === 1 ? 'page' : 'pages'}`
    } catch {
      loading = undefined
    }
    // A later query has its own answer.
    if (query !== field.value) return
    status.textContent = text
    list.replaceChildren(...pages.map(({ address, title, heading, group }) => {
      const parts = heading === '' ? [title] : [title, element('span', {}, heading)]
      return element('li', {}, element('a', { href: new URL(address, ROOT).href }, element('small', {}, group), ...parts))
    }))
    found.hidden = query.trim() === ''
  }
  const close = () => {
    found.hidden = true
  }
  field.addEventListener('focus', () => void load().catch(() => (loading = undefined)))
  field.addEventListener('input', () => void show())
  search.addEventListener('focusin', () => field.value.trim() !== '' && list.childElementCount > 0 && (found.hidden = false))
  search.addEventListener('focusout', ({ relatedTarget }) => {
    if (!(relatedTarget instanceof Node && search.contains(relatedTarget))) close()
  })
  list.addEventListener('click', close)
  // Not all browsers focus a link that is pressed. The field keeps the focus, so that the hits stay until the click.
  found.addEventListener('mousedown', (event) => event.preventDefault())
  search.addEventListener('keydown', (event) => {
    const all = links()
    const at = all.findIndex((link) => link === document.activeElement)
    if (event.key === 'ArrowDown') (all[at + 1] ?? all[0])?.focus()
    else if (event.key === 'ArrowUp') (at <= 0 ? field : all[at - 1])?.focus()
    else if (event.key === 'Enter' && at < 0) void show().then(() => links()[0]?.click())
    else if (event.key === 'Escape') {
      field.focus()
      close()
    } else return
    event.preventDefault()
  })
  document.addEventListener('keydown', (event) => {
    const isTyping = event.target instanceof HTMLInputElement
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || isTyping) return
    event.preventDefault()
    field.select()
    field.focus()
  })
}

/**
 * The text to copy: of a terminal only the commands.
 * @param {Element} code
 */
function copied(code) {
  const text = code.textContent ?? ''
  if (!code.classList.contains('language-console')) return text
  const commands = text.split('\n').filter((line) => line.startsWith('$ '))
  return commands.map((line) => `${line.slice(2)}\n`).join('')
}

function addCopyButtons() {
  // Browsers have a clipboard only over TLS and on this machine.
  if (navigator.clipboard === undefined) return
  for (const code of document.querySelectorAll('.code code:not(.language-text, .language-picture)')) {
    const button = element('button', { type: 'button' }, 'Copy')
    button.addEventListener('click', async () => {
      await navigator.clipboard.writeText(copied(code))
      button.textContent = 'Copied'
      setTimeout(() => (button.textContent = 'Copy'), COPIED_MS)
    })
    code.closest('.code')?.append(button)
  }
}

/** Marks the section in view in the outline. */
function followOutline() {
  const links = [...document.querySelectorAll('.outline a')]
  const headings = links.map((link) => document.getElementById(decodeURIComponent((link.getAttribute('href') ?? '').slice(1))))
  const mark = () => {
    // The last heading that has passed the upper third of the window.
    const at = headings.findLastIndex((heading) => (heading?.getBoundingClientRect().top ?? 0) < innerHeight / 3)
    links.forEach((link, i) => (i === at ? link.setAttribute('aria-current', 'location') : link.removeAttribute('aria-current')))
  }
  if (links.length === 0) return
  document.addEventListener('scroll', mark, { passive: true })
  mark()
}

addSearch()
addCopyButtons()
followOutline()
// The menu scrolls by itself.
const menu = document.getElementById('menu')
const current = menu?.querySelector('[aria-current]')
if (menu && current instanceof HTMLElement) menu.scrollTop = current.offsetTop - menu.clientHeight / 2

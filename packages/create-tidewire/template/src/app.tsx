// The page: a list that all open tabs share.

import { useState, type FormEvent } from 'react'
import { useConnection, useRecord } from './tidewire.ts'

const LIST = 'lists/first'

export function App() {
  const { state } = useConnection()
  const { value, isReady, error } = useRecord(LIST)
  return (
    <main>
      <p role="status">{state}</p>
      {error && <p role="alert">the list could not be read: {error.code}</p>}
      {isReady && (
        <>
          <Title />
          <ul>
            {Object.keys(value?.items ?? {}).map((id) => (
              <Item key={id} id={id} />
            ))}
          </ul>
          <NewItem />
        </>
      )}
    </main>
  )
}

function Title() {
  const { value = '', setWithAck } = useRecord(LIST, { path: 'title' })
  const [refusal, setRefusal] = useState('')
  const save = (title: string) => {
    setRefusal('')
    setWithAck('title', title).catch(({ code }: { code: string }) => setRefusal(code))
  }
  return (
    <>
      <input className="title" aria-label="Title" placeholder="Title" value={value} onChange={(event) => save(event.target.value)} />
      {refusal && <p role="alert">the server refused the title, and the edit was undone: {refusal}</p>}
    </>
  )
}

function Item({ id }: { id: string }) {
  const { value, set } = useRecord(LIST, { path: ['items', id] })
  if (!value) return null
  return (
    <li>
      <label className={value.done ? 'done' : ''}>
        <input type="checkbox" checked={value.done} onChange={(event) => set(['items', id, 'done'], event.target.checked)} />
        {value.text}
      </label>
    </li>
  )
}

function NewItem() {
  const { set } = useRecord(LIST, { path: 'items' })
  const [text, setText] = useState('')
  const add = (event: FormEvent) => {
    event.preventDefault()
    if (text.trim() !== '') set(['items', crypto.randomUUID()], { text: text.trim(), done: false })
    setText('')
  }
  return (
    <form onSubmit={add}>
      <input aria-label="New item" placeholder="New item" value={text} onChange={(event) => setText(event.target.value)} />
      <button>Add</button>
    </form>
  )
}

import { Client } from '@tidewire/client'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import type { App } from '../src/tidewire.ts'
import { startServer } from './server.ts'

test('two clients share a list, and the rules refuse a long title', async (t) => {
  const address = await startServer(t)
  const clientOf = (username: string) => new Client<App>(address, { webSocket: WebSocket, auth: { username } })
  const [alice, bob] = [clientOf('alice'), clientOf('bob')]
  t.after(() => {
    alice.close()
    bob.close()
  })
  await Promise.all([alice.connect(), bob.connect()])

  const hers = alice.record.open('lists/first')
  await hers.setWithAck({ title: 'groceries' })
  const his = bob.record.open('lists/first')
  await his.ready
  const seen = new Promise((done) => his.subscribe(['items', 'milk'], (item) => item && done(item)))
  await hers.setWithAck(['items', 'milk'], { text: 'milk', done: false })
  assert.deepEqual(await seen, { text: 'milk', done: false })

  await assert.rejects(hers.setWithAck('title', 'x'.repeat(61)), { code: 'MESSAGE_DENIED' })
  assert.equal(hers.value?.title, 'groceries')
})

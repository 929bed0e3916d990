import { Client } from '@tidewire/client'
import { scopesOf } from '@tidewire/client/scopes'
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { WebSocket } from 'ws'
import type { App } from '../src/tidewire.ts'
import { startServer } from './server.ts'

/** The clients of two users. */
async function twoClients(t: TestContext) {
  const address = await startServer(t)
  const clientOf = (username: string) => new Client<App>(address, { webSocket: WebSocket, auth: { username } })
  const [alice, bob] = [clientOf('alice'), clientOf('bob')]
  t.after(() => {
    alice.close()
    bob.close()
  })
  await Promise.all([alice.connect(), bob.connect()])
  return [alice, bob] as const
}

test('two clients share a list, and the rules refuse a long title', async (t) => {
  const [alice, bob] = await twoClients(t)

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

test('the members of a list see each other, and the rules refuse the name of another user', async (t) => {
  const [alice, bob] = await twoClients(t)
  await scopesOf(alice).join('lists/first', { name: 'alice', item: 'milk' }).ready
  const seen = new Promise((done) => scopesOf(bob).follow('lists/first', (members) => done(members.map(({ user, state }) => [user, state.item]))))
  assert.deepEqual(await seen, [['alice', 'milk']])

  const refused = scopesOf(bob).join('lists/first', { name: 'alice' }, { onEnd: () => {} })
  await assert.rejects(refused.ready, { code: 'MESSAGE_DENIED' })
})

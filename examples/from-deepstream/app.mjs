// A small app on deepstream's stock client: node app.mjs [host:port]. It prints the same on deepstream and on Tidewire.

import { DeepstreamClient } from '@deepstream/client'

const address = process.argv[2] ?? 'localhost:6020'

/** A client that is logged in. It ignores `error` events; the code below prints the refusals that matter. */
async function login(username, password = 'password') {
  // Subscriptions are sent immediately, in order with all other messages.
  const client = new DeepstreamClient(address, { subscriptionInterval: -1 })
  client.on('error', () => {})
  client.loginData = await client.login({ username, password })
  return client
}

const wrong = await login('alice', 'wrong').catch(() => 'refused')
console.log('a wrong password is', wrong)

const alice = await login('alice')
const bob = await login('bob')
console.log('bob receives', JSON.stringify(bob.loginData))
console.log('other users online:', await alice.presence.getAll())

const hers = await alice.record.getRecord('account/bob').whenReady()
await hers.setWithAck({ owner: 'bob', balance: 1 })
const his = await bob.record.getRecord('account/bob').whenReady()
await his.setWithAck('balance', 2)
console.log('the account of bob', JSON.stringify(his.get()))

const foreign = await bob.record.getRecord('account/alice').whenReady()
const denied = await foreign.setWithAck('balance', 1_000_000).catch((error) => error)
console.log('bob writes to the account of alice:', denied)

const list = await alice.record.getList('accounts').whenReady()
await new Promise((done) => list.setEntries(['account/alice', 'account/bob'], done))
console.log('the list', (await bob.record.snapshot('accounts')).join())

const heard = new Promise((done) => bob.event.subscribe('alarm', done))
// An answer that arrives after the server has processed the subscription.
await bob.presence.getAll()
alice.event.emit('alarm', { level: 'red' })
console.log('bob hears', JSON.stringify(await heard))
const alarms = []
alice.event.subscribe('alarm', (alarm) => alarms.push(alarm))
const noted = new Promise((done) => alice.event.subscribe('note', done))
await alice.presence.getAll()
bob.event.emit('alarm', 'false alarm')
bob.event.emit('note', 'after the alarm')
console.log('alice hears', await noted, 'and of alarms', alarms.length)

alice.rpc.provide('double', (value, response, { requestorName }) => response.send({ doubled: value * 2, asked: requestorName }))
await alice.presence.getAll()
console.log('double 21 is', JSON.stringify(await bob.rpc.make('double', 21)))

for (const client of [alice, bob]) client.close()
process.exit(0)

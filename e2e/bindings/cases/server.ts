// Components on a server: they are rendered without a connection, with their initial values.

import assert from 'node:assert/strict';
import { fresh } from '../../harness/names.ts';
import type { Component } from '../binding.ts';
import { clientOfPage, entriesOf } from '../stage.ts';
import type { ServerCase } from '../suite.ts';

/** The text of a page as a browser shows it. */
const textOf = (html: string): string => html.replaceAll(/<!--.*?-->|<[^>]*>/gs, '').replaceAll('&quot;', '"').trim();

export const SERVER: Record<string, ServerCase> = {
  async 'on a server all hooks render without a connection'(t, on) {
    const { client, sent } = clientOfPage(t, 'localhost:1');
    const name = fresh('todo');
    const All: Component = ({ useRecord, useList, useQuery, useMembers, useEvent, useProvide, useRpc, usePresence, useEveryone, useConnection, useSync }) => {
      const [record, list] = [useRecord(name, { path: 'title', initial: 'from the server' }), useList(fresh('list'), { initial: ['milk'] })];
      const [rows, given] = [useQuery('table', { limit: 1 }, { initial: [{ id: 'a', version: 1, data: {} }] }), useQuery('table', {})];
      const [here, there] = [useMembers('room', { x: 1 }), useMembers('room', { x: 1 }, { initial: [{ id: 'b', state: {} }] })];
      const waiting = useRecord(name, { suspense: true, initial: { title: 'given' } });
      useEvent(fresh('event'), () => {});
      useProvide(fresh('rpc'), () => 1);
      const [rpc, one, everyone, connection, sync] = [useRpc('add'), usePresence('bob'), useEveryone(), useConnection(), useSync()];
      return () => {
        const shown = [record().value, list().value?.join(), waiting().value?.title, rows().value?.[0]?.id, given().value, here().isReady, there().value?.[0]?.id, rpc().isRunning, one().value, everyone().isReady, connection().state, sync().mode];
        return shown.map(String).join(' ');
      };
    };
    const html = await on.render({ client, offline: true }, entriesOf([All]));
    assert.equal(textOf(html), 'from the server milk given a undefined false b false undefined false closed starting');
    assert.deepEqual([client.state, sent.messages, client.event.names, client.record.documents.size], ['closed', [], [], 0]);
  },
};

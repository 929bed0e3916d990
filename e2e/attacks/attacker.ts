// The process of an attacker: runs one attack until the test sends `stop`, then reports the number that the attack reached. It is a
// separate process at the lowest priority, because a real attacker does not share the server's processors.

import { ATTACKS } from './list.ts';

const [name, address, tlsAddress] = process.argv.slice(2) as [string, string, string];
const attack = ATTACKS.find((attack) => attack.name === name);
if (!attack) throw new Error(`there is no attack ${name}`);
let isTold = false;
process.once('message', () => (isTold = true));
process.send?.('begun');
const reached = await attack.run({ address, tlsAddress, isOver: () => isTold });
process.send?.(reached, () => process.exit());

// The process of an attacker: runs one attack until it is told to stop, and says what it reached. A process of its own and of the
// lowest priority, because a real one does not share the server's processors.

import { ATTACKS } from './list.ts';

const [name, address, tlsAddress] = process.argv.slice(2) as [string, string, string];
const attack = ATTACKS.find((attack) => attack.name === name);
if (!attack) throw new Error(`there is no attack ${name}`);
let isTold = false;
process.once('message', () => (isTold = true));
process.send?.('begun');
const reached = await attack.run({ address, tlsAddress, isOver: () => isTold });
process.send?.(reached, () => process.exit());

// The behaviour that all bindings share, in React 18 and 19.

import { reactBinding } from './driver/react.ts';
import { VERSIONS, stage } from './react-stage.ts';
import { suite } from './suite.ts';

for (const [version, modules] of Object.entries(VERSIONS)) suite(version, async () => reactBinding(await stage(modules)));

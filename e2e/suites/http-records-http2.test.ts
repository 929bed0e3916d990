// The suite `http-records` once more, with all that it asks by `fetch` over HTTP/2.

import '../harness/over-http2.ts';

await import('./http-records.test.ts');

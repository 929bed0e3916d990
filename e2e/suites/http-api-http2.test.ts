// The suite `http-api` once more, with all that it asks by `fetch` over HTTP/2.

import '../harness/over-http2.ts';

await import('./http-api.test.ts');

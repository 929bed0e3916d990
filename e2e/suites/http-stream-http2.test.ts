// The suite `http-stream` again, with all its `fetch` requests over HTTP/2.

import '../harness/over-http2.ts';

await import('./http-stream.test.ts');

// All entries in one, for pages without a bundler: the server serves it as a module, and `page-all.ts` makes it a global.

export * from './anonymous.js';
export * from './devtools.js';
export * from './index.js';
export * from './inspect.js';
export * from './listen.js';
export * from './lists.js';
export * from './live-query.js';
export * from './offline.js';
export * from './patterns.js';
export * from './presence.js';
export * from './provide.js';
export * from './scopes.js';
export * from './transactions.js';
export * from './validation.js';

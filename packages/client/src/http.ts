// HTTP requests to the server of a WebSocket. They have no credentials: no cookies, user information, query or data of a login.

/** The address of the HTTP server behind the address of a WebSocket, without a path. */
export function httpServer({ protocol, host }: URL): string {
  return `${protocol.replace('ws', 'http')}//${host}`;
}

/** Requests `url`; `more` are further options of `fetch`. */
export function request(url: string, more: object): Promise<Response> {
  return fetch(url, { credentials: 'omit', cache: 'no-store', referrerPolicy: 'no-referrer', ...more } as RequestInit);
}

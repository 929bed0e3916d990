// The address of the page as a QR code. The phone gets a page with one user.

import { encode } from 'uqr';

/** The names of this machine. */
export const LOOPBACK = /^(localhost|127\.|\[::1\])/;
/** The flags of a server that other machines can reach. */
const FLAGS = '--dev --host 0.0.0.0 --auth-open-on-public-address --network-hosts NAME';

export function Phone() {
  const { href } = new URL('?panes=1', location.href);
  const { data, size } = encode(href, { border: 2 });
  const path = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : []))).join('');
  return (
    <details class="phone">
      <summary>On your phone</summary>
      <div class="sheet">
        <svg viewBox={`0 0 ${size} ${size}`} role="img" aria-label={`QR code of ${href}`}>
          <rect width={size} height={size} fill="#fff" />
          <path d={path} fill="#000" />
        </svg>
        {LOOPBACK.test(location.hostname) ? (
          <p class="hint">
            A phone cannot reach this address. In a network that you trust, start the server with <code>{FLAGS}</code>, where NAME is the name or the address of
            this machine, and open this page under that name.
          </p>
        ) : (
          <p class="hint">{href}</p>
        )}
      </div>
    </details>
  );
}

import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { Board } from './board.tsx';
import { People } from './people.tsx';
import { Status } from './status.tsx';
import { client, database, TidewireProvider } from './tidewire.ts';

createRoot(document.getElementById('root') as HTMLElement).render(
  <StrictMode>
    <TidewireProvider client={client} offline={{ database }}>
      <header>
        <h1>Board</h1>
        <Status />
        <People />
      </header>
      <Board />
    </TidewireProvider>
  </StrictMode>,
);

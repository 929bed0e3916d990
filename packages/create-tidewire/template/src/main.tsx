import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { App } from './app.tsx'
import './style.css'
import { client, TidewireProvider } from './tidewire.ts'

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <TidewireProvider client={client}>
      <App />
    </TidewireProvider>
  </StrictMode>,
)

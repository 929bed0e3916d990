declare module '*.svelte' {
  const component: unknown;
  export default component;
}

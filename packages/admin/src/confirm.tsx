// Asks back before an action that destroys something or closes connections.

import { useEffect, useId, useRef, useState } from 'preact/hooks';
import type { VNode } from 'preact';

interface Question {
  /** What will happen. */
  text: string;
  /** The label of the button that confirms it. */
  action: string;
  run: () => Promise<void> | void;
}

/** The open question, to be rendered, and a function that asks one. The action runs only if the operator confirms it. */
export function useConfirm(): [VNode | null, (question: Question) => void] {
  const [question, setQuestion] = useState<Question>();
  const answer = (isConfirmed: boolean): void => {
    setQuestion(undefined);
    if (isConfirmed) void question?.run();
  };
  return [question === undefined ? null : <Confirm question={question} onAnswer={answer} />, setQuestion];
}

function Confirm({ question, onAnswer }: { question: Question; onAnswer: (isConfirmed: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current as HTMLDialogElement;
    const opener = document.activeElement as HTMLElement | null;
    element.showModal();
    return () => {
      element.close();
      opener?.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onAnswer(false);
      }}
    >
      <p id={id} class="name">
        {question.text}
      </p>
      <div class="bar">
        {/* The first button has the focus, so Enter alone destroys nothing. */}
        <button type="button" onClick={() => onAnswer(false)}>
          Cancel
        </button>
        <button type="button" class="danger" onClick={() => onAnswer(true)}>
          {question.action}
        </button>
      </div>
    </dialog>
  );
}

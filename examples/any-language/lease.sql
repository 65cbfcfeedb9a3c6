-- An effect outside the database, a mail say. The claim commits before anything is sent, the end after it.
SELECT gen_random_uuid() AS attempt \gset
SELECT claim, fence, outcome
    FROM semel.claim('mails', 'order-77', :'attempt', semel.fingerprint('welcome', 'alice@example.org')) \gset

-- 'acquired': it is sent now. While that lasts, every ten seconds:
SELECT semel.renew('mails', 'order-77', :fence, :'attempt');

-- It was sent. Refused, and nothing happened: semel.release instead. No answer: semel.park.
SELECT semel.complete('mails', 'order-77', :fence, :'attempt', 'sent');

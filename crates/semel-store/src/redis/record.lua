-- What a record is, and what the scripts do with it. Stands before each of them.
--
-- A script runs alone: nothing else of this server runs between its first line and its last, so what it reads is
-- what it writes upon. It is not rolled back, so every script decides first and writes last, and its first write is
-- the one that can be refused (for want of memory, by a disk that is full): then nothing is written.
--
-- The rules are those of crates/semel/src/record.rs, function by function and by the same names.
--
-- Numbers of this language are doubles, exact up to 2^53. Instants are milliseconds and end there, as "never"; fences
-- count claims of one key, one by one. A fence from outside is compared as text, so that none is rounded into another.

local NEVER = 9007199254740991
-- How long Redis keeps what is forgotten, so that a sweep finds it together with its names: ten minutes.
local MARGIN = 600000
-- The last 128 attempts that are over, sixteen bytes each.
local SPENT_BYTES = 128 * 16
local LAYOUT = 1

-- The places of a record, which is kept as one MessagePack array.
local VERSION, STATE, FENCE, ATTEMPT, SPENT, ATTEMPTS, BOUND, BOUND_BY, DOUBT, FIRST_AT, SINCE, LABEL, INPUT = 1, 2,
    3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
-- AT is the end of the lease, the earliest next claim, or the end of the replay; TEXT the outcome, or the cause.
local AT, FORGET_AT, WAS, SETTLES, FORMAT, TEXT = 14, 15, 16, 17, 18, 19

local RUNNING, RELEASED, COMPLETED, UNKNOWN, DEAD = 1, 2, 3, 4, 5
local WAS_NEW, WAS_RELEASED, WAS_LAPSED, WAS_UNKNOWN, WAS_DEAD, WAS_RUNNING = 0, 1, 2, 3, 4, 5

local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function after(now, duration)
    return math.min(now + duration, NEVER)
end

local function text(number)
    return string.format('%.0f', number)
end

-- The record at a name; nil where there is none. A newer program's layout is none that this one may guess at.
local function load(name)
    local packed = redis.call('GET', name)
    if not packed then
        return nil
    end
    local is_read, record = pcall(cmsgpack.unpack, packed)
    if not is_read or type(record) ~= 'table' or record[VERSION] ~= LAYOUT then
        error({ err = 'SEMELCORRUPT a record cannot be read' })
    end
    return record
end

local function is_expired(record, now)
    return now >= record[FORGET_AT]
end

-- A lease ends at its instant, not after it.
local function is_lapsed(record, now)
    return now >= record[AT]
end

-- Since when, or from when on, a record waits for somebody.
local function open_at(record)
    local state = record[STATE]
    if state == RUNNING then
        return record[AT]
    elseif state == UNKNOWN or state == DEAD then
        return record[SINCE]
    end
end

-- When there is something to free next; nil if never.
local function due_at(record)
    local at = record[FORGET_AT]
    if record[FORMAT] then
        at = record[AT]
    end
    if at < NEVER then
        return at
    end
end

local function is_spent(record, attempt)
    local at = string.find(record[SPENT], attempt, 1, true)
    -- Only where an id begins: the bytes of two neighbours are none.
    while at and (at - 1) % 16 ~= 0 do
        at = string.find(record[SPENT], attempt, at + 1, true)
    end
    return at ~= nil
end

-- Remembers that the present attempt is over.
local function spend(record)
    if not is_spent(record, record[ATTEMPT]) then
        record[SPENT] = string.sub(record[SPENT] .. record[ATTEMPT], -SPENT_BYTES)
    end
end

-- Puts a record into another state.
local function enter(record, state, now)
    record[STATE], record[SINCE] = state, now
    record[AT], record[FORGET_AT], record[WAS], record[SETTLES] = 0, NEVER, WAS_NEW, 0
    record[FORMAT], record[TEXT] = false, ''
end

-- What the record was that `taken` read last: its state, and when it was open and due. No state: there was none.
local old_state, old_open, old_due

-- Reads the record that is to be written.
local function taken(name)
    local record = load(name)
    old_state, old_open, old_due = nil, nil, nil
    if record then
        old_state, old_open, old_due = record[STATE], open_at(record), due_at(record)
    end
    return record
end

-- Writes a record in the place of the one that was taken, and keeps its names with it. The record goes first: of these
-- writes it alone can be refused, and then nothing is written. Redis writes numbers out exactly.
--
-- KEYS: open, due, index, and at `place` the record and its history
local function save(place, id, record)
    local packed = cmsgpack.pack(record)
    local forget_at = record[FORGET_AT]
    if forget_at < NEVER then
        redis.call('SET', KEYS[place], packed, 'PXAT', forget_at + MARGIN)
    else
        redis.call('SET', KEYS[place], packed)
    end
    local open, due = open_at(record), due_at(record)
    if open then
        redis.call('ZADD', KEYS[1], open, id)
    elseif old_open then
        redis.call('ZREM', KEYS[1], id)
    end
    if due then
        redis.call('ZADD', KEYS[2], due, id)
    elseif old_due then
        redis.call('ZREM', KEYS[2], id)
    end
    if not old_state then
        redis.call('ZADD', KEYS[3], 0, id)
    elseif old_state ~= RUNNING or record[FENCE] > 1 then
        -- Only then can there be a history. It goes with the record.
        if forget_at < NEVER then
            redis.call('PEXPIREAT', KEYS[place + 1], forget_at + MARGIN)
        else
            redis.call('PERSIST', KEYS[place + 1])
        end
    end
end

-- Answers every call that came in this one, one after the other. What fails of one of them, its first write at the
-- latest, is its own answer; the others know nothing of it.
--
-- KEYS: open, due, index, then record and history of each; ARGV: `width` for each
local function each(width, decide)
    local answers = {}
    for call = 0, #ARGV / width - 1 do
        local is_decided, answer = pcall(decide, 2 * call + 4, width * call)
        if not is_decided then
            -- Redis's own pcall gives the text of what was raised.
            answer = { err = type(answer) == 'table' and answer.err or tostring(answer) }
        end
        answers[call + 1] = answer
    end
    return answers
end

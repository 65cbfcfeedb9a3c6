-- Decides a claim, as record::claim does. Atomic as every script is; repeated with the same attempt it gives the same
-- lease, so a client that sends it twice has asked twice and run once.
--
-- KEYS: record, open, due, index, history
-- ARGV: id, attempt, lease_for, label, input ('+' before it; '' for none), purpose,
--       'run': fingerprint, rerun, attempts_max; 'settle': seen, force
local id, attempt, lease_for = ARGV[1], ARGV[2], tonumber(ARGV[3])
local is_run = ARGV[6] == 'run'
local now = clock()
local stored = load(KEYS[1])
local record = stored
if record and is_expired(record, now) then
    record = nil
end

local function lease(was)
    return { 'acquired', text(record[FENCE]), record[ATTEMPTS], was, record[DOUBT] }
end

local function age()
    return text(math.max(now - record[FIRST_AT], 0))
end

local function copied()
    local copy = {}
    for place = 1, TEXT do
        copy[place] = stored[place]
    end
    return copy
end

local function describe()
    record[LABEL], record[INPUT] = ARGV[4], false
    if ARGV[5] ~= '' then
        record[INPUT] = string.sub(ARGV[5], 2)
    end
end

-- Gives the record to the request: fence up, attempt counted, lease begun.
local function acquire(was)
    local old = stored
    if was ~= WAS_NEW then
        old = copied()
        spend(record)
    end
    record[FENCE], record[ATTEMPT] = record[FENCE] + 1, attempt
    if is_run then
        record[ATTEMPTS] = record[ATTEMPTS] + 1
        if was == WAS_LAPSED or was == WAS_UNKNOWN then
            record[DOUBT] = 1
        end
        if record[BOUND] == '' then
            record[BOUND], record[BOUND_BY] = ARGV[7], record[FENCE]
            describe()
        end
    end
    enter(record, RUNNING, now)
    record[AT], record[WAS] = after(now, lease_for), was
    record[SETTLES] = is_run and 0 or 1
    save(KEYS, id, old, record)
    return lease(was)
end

-- A record that no claim has raised yet. What an expired one left behind goes.
local function first()
    record = { LAYOUT, RUNNING, 0, attempt, '', 0, '', 1, 0, now, now, '', false, now, NEVER, WAS_NEW, 0, false, '' }
    local granted = acquire(WAS_NEW)
    if stored then
        redis.call('UNLINK', KEYS[5])
    end
    return granted
end

-- The holder asks again: its earlier answer was lost. Same lease, longer.
local function extend()
    record[AT] = after(now, lease_for)
    save(KEYS, id, copied(), record)
    return lease(record[WAS])
end

-- What a claim that settles would take over, if it may.
local function takeable(force)
    local state = record[STATE]
    if state == RUNNING then
        if not is_lapsed(record, now) then
            return force and WAS_RUNNING or nil
        end
        -- A redrive that died has changed nothing: the record is as dead as before.
        return record[WAS] == WAS_DEAD and record[SETTLES] == 1 and WAS_DEAD or WAS_LAPSED
    elseif state == UNKNOWN then
        return WAS_UNKNOWN
    elseif state == DEAD then
        return WAS_DEAD
    end
end

local function unknown(cause)
    return { 'unknown', text(record[FENCE]), cause, age() }
end

local function dead(cause)
    return { 'dead', text(record[FENCE]), cause, age() }
end

local function exhausted()
    local old = copied()
    if record[STATE] == RELEASED then
        spend(record)
    end
    enter(record, DEAD, now)
    record[TEXT] = 'attempts-exhausted'
    save(KEYS, id, old, record)
    return dead(record[TEXT])
end

-- A run's claim on a record that is bound to nothing else.
local function run(is_over, rerun, attempts_max)
    local state, was = record[STATE], nil
    local wait = text(math.max(record[AT] - now, 0))
    if state == RUNNING then
        if not is_lapsed(record, now) then
            return { 'in-flight', wait, age() }
        end
        -- What was dead, and whose redrive died, waits for a person.
        if not rerun or is_over or (record[SETTLES] == 1 and record[WAS] == WAS_DEAD) then
            return unknown('lapsed')
        end
        was = WAS_LAPSED
    elseif state == RELEASED then
        if is_over or now < record[AT] then
            return { 'in-flight', wait, age() }
        end
        was = WAS_RELEASED
    elseif state == COMPLETED then
        if record[FORMAT] and now < record[AT] then
            return { 'completed', record[FORMAT], record[TEXT], age(), record[ATTEMPTS] }
        end
        return { 'forgotten', age() }
    elseif state == UNKNOWN then
        if not rerun or is_over then
            return unknown(record[TEXT])
        end
        was = WAS_UNKNOWN
    else
        return dead(record[TEXT])
    end
    if record[ATTEMPTS] >= attempts_max then
        return exhausted()
    end
    return acquire(was)
end

if not record then
    return is_run and first() or { 'moved' }
end
if record[STATE] == RUNNING and record[ATTEMPT] == attempt then
    return extend()
end
-- It does not run, as was just seen.
local is_over = record[ATTEMPT] == attempt or is_spent(record, attempt)
if is_run then
    if record[BOUND] ~= '' and record[BOUND] ~= ARGV[7] then
        return { 'mismatch', string.byte(record[BOUND], 1) }
    end
    return run(is_over, ARGV[8] == '1', tonumber(ARGV[9]))
end
local was = takeable(ARGV[8] == '1')
if was and text(record[FENCE]) == ARGV[7] and not is_over then
    return acquire(was)
end
return { 'moved' }

-- Ends attempts, each as record::settle does. Fenced within the script, so no takeover lies between the look and the
-- write; a repetition finds what the first one wrote and says so.
--
-- ARGV of each: id, fence, attempt, again ('1': a repetition writes the record once more, for WAIT to wait for), kind,
--       'complete': format, outcome, replay_for, remember_for; 'release': not_before, unbind, ran, remember_for;
--       'park' and 'bury': cause, and three that are empty
local now = clock()
-- The call that is decided: its record's place among KEYS, and what stands before its own ARGV.
local place, from, record, kind

local function complete()
    enter(record, COMPLETED, now)
    record[DOUBT] = 0
    record[FORMAT], record[TEXT] = tonumber(ARGV[from + 6]), ARGV[from + 7]
    record[AT] = after(now, tonumber(ARGV[from + 8]))
    record[FORGET_AT] = math.max(after(now, tonumber(ARGV[from + 9])), record[AT])
end

local function release()
    local was_running, was, settles = record[STATE] == RUNNING, record[WAS], record[SETTLES]
    enter(record, RELEASED, now)
    if ARGV[from + 7] == '1' and record[BOUND_BY] == record[FENCE] then
        record[BOUND] = ''
    end
    if was_running and settles == 1 then
        record[DOUBT] = 0
        if was == WAS_DEAD then
            record[ATTEMPTS] = 0
        end
    elseif ARGV[from + 8] == '0' then
        record[ATTEMPTS] = math.max(record[ATTEMPTS] - 1, 0)
    end
    record[AT] = after(now, tonumber(ARGV[from + 6]))
    record[FORGET_AT] = math.max(after(now, tonumber(ARGV[from + 9])), record[AT])
end

local function settled()
    if kind == 'complete' then
        complete()
    elseif kind == 'release' then
        release()
    elseif kind == 'park' then
        enter(record, UNKNOWN, now)
        record[TEXT] = ARGV[from + 6]
    else
        spend(record)
        enter(record, DEAD, now)
        record[TEXT] = ARGV[from + 6]
    end
    save(place, ARGV[from + 1], record)
    return 'done'
end

-- This very settlement stands already.
local function stands()
    if ARGV[from + 4] == '1' then
        redis.call('SET', KEYS[place], cmsgpack.pack(record), 'KEEPTTL')
    end
    return 'done'
end

return each(9, function(place_now, from_now)
    place, from = place_now, from_now
    record, kind = taken(KEYS[place]), ARGV[from + 5]
    if not record or is_expired(record, now) or text(record[FENCE]) ~= ARGV[from + 2]
        or record[ATTEMPT] ~= ARGV[from + 3] then
        return 'lost'
    end
    local state, is_truth = record[STATE], kind == 'complete' or kind == 'release'
    if state == RUNNING or (state == UNKNOWN and is_truth) then
        return settled()
    end
    -- A claim found the attempts exhausted while this one was open: the fence has not moved, so its truth counts.
    if state == DEAD and is_truth and not is_spent(record, ARGV[from + 3]) then
        return settled()
    end
    if state == COMPLETED and kind == 'complete' then
        -- A forgotten outcome is compared no more, swept or not.
        local is_same = record[FORMAT] == tonumber(ARGV[from + 6]) and record[TEXT] == ARGV[from + 7]
        if now >= record[AT] or not record[FORMAT] or is_same then
            return stands()
        end
    end
    if (state == RELEASED and kind == 'release') or (state == UNKNOWN and kind == 'park')
        or (state == DEAD and kind == 'bury') then
        return stands()
    end
    return 'otherwise'
end)
